"""What a backend may report instead of a value: three signals, turned into answers by `Store`.

Missing   the store itself says that the key does not exist
Exists    a conditional create found the key taken (perhaps by our own lost request)
Fault     the look or the act failed; says nothing about what is there
"""

from __future__ import annotations

import errno
import re

from msgspec import Struct


class Missing(Exception):
    """The key is not there. `proof` names the signal (`NoSuchKey`, `ENOENT`)."""

    def __init__(self, proof: str) -> None:
        super().__init__(proof)
        self.proof = proof


class Exists(Exception):
    """The key is taken."""


class Fault(Exception):
    """A look or an act failed. `cause` is a stable code, `detail` is safe to print.

    `again`: the same request may well succeed in a moment. `full`: there is no space.
    """

    def __init__(self, cause: str, detail: str, *, again: bool = False, full: bool = False) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail
        self.again = again
        self.full = full


_ERRNO_CAUSE = {
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.EMFILE: "emfile",
    errno.ENFILE: "emfile",
    errno.EROFS: "read_only",
    errno.ENAMETOOLONG: "name_too_long",
    errno.EISDIR: "is_a_folder",
    errno.ENOTDIR: "not_a_folder",
    errno.EIO: "io_error",
    errno.ESTALE: "stale_handle",
    errno.ETIMEDOUT: "timeout",
    errno.EINTR: "interrupted",
}
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def fault_of_os_error(error: OSError) -> Fault:
    """The fault behind an error of the operating system."""
    number = error.errno or 0
    if number in _NO_SPACE:
        return Fault("full", errno.errorcode[number], full=True)
    name = errno.errorcode.get(number, type(error).__name__)
    cause = _ERRNO_CAUSE.get(number, "io_error")
    return Fault(cause, name, again=number in (errno.EINTR, errno.ESTALE, errno.ETIMEDOUT))


# Words of the HTTP client's debug text that tell network faults apart; first match wins.
_NETWORK_WORDS = (
    ("Too many open files", "emfile"),
    ("dns error", "dns"),
    ("failed to lookup address", "dns"),
    ("invalid peer certificate", "tls"),
    ("certificate", "tls"),
    ("Connection refused", "refused"),
    ("ConnectionRefused", "refused"),
    ("operation timed out", "timeout"),
    ("TimedOut", "timeout"),
    ("kind: Timeout", "timeout"),
    ("without LOCATION", "wrong_region"),
    ("kind: Body", "truncated"),
    ("kind: Decode", "truncated"),
    ("IncompleteMessage", "reset"),
    ("ConnectionReset", "reset"),
    ("ConnectionAborted", "reset"),
    ("BrokenPipe", "reset"),
    ("HTTP error", "network"),
    ("empty path segment", "unsupported_key"),
    ("MissingCredential", "no_credentials"),
    ("InstanceMetadata", "no_credentials"),
)
_AGAIN = frozenset(
    ["dns", "refused", "timeout", "truncated", "reset", "network", "throttled", "server_error"]
)
_BAD_CREDENTIALS = frozenset(
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"]
)
_FULL_CODES = frozenset(["QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"])
_ABSENT_CODES = frozenset(["NoSuchKey", "BlobNotFound"])
_NO_BUCKET_CODES = frozenset(["NoSuchBucket", "ContainerNotFound"])
_STATUS_MARK = "Server returned non-2xx status code: "
_CODE = re.compile(r"<Code>\s*(\w{1,64})\s*</Code>")


class HttpRefusal(Struct, frozen=True):
    """Status and error code that a store gave; `code` is empty when the body names none."""

    status: int
    code: str


def http_refusal(text: str) -> HttpRefusal | None:
    """Read status and error code out of the client's message; None if it was not a refusal."""
    # The message ends with the reply's body; the key, which anybody may choose, stands before it.
    head = text.partition("\n\nDebug source:")[0]
    _, mark, rest = head.rpartition(_STATUS_MARK)
    if not mark:
        return None
    status = rest[:3]
    if not status.isdigit():
        return None
    code = _CODE.search(rest)
    return HttpRefusal(int(status), code.group(1) if code else "")


def fault_of_remote(text: str, where: str) -> Fault | Missing:
    """Class what the object-store client reported. Its own text is never passed on."""
    if "http://169.254.169.254/" in text.partition("\n")[0]:
        return Fault("no_credentials", f"no credentials for {where}")
    refusal = http_refusal(text)
    if refusal is None:
        if text.startswith("Object at location") and "NoDataInMemory" in text:
            return Missing("NoDataInMemory")
        cause = next((cause for word, cause in _NETWORK_WORDS if word in text), "unexpected")
        return Fault(cause, f"no usable reply from {where}", again=cause in _AGAIN)
    detail = f"HTTP {refusal.status} {refusal.code} from {where}".replace("  ", " ")
    if refusal.status == 404 and refusal.code in _ABSENT_CODES:
        return Missing(refusal.code)
    cause = _cause_of_refusal(refusal)
    return Fault(cause, detail, again=cause in _AGAIN, full=cause == "full")


def _cause_of_refusal(refusal: HttpRefusal) -> str:
    status, code = refusal.status, refusal.code
    if code in _FULL_CODES or status == 507:
        return "full"
    if code in _NO_BUCKET_CODES:
        return "no_bucket"
    if code in _BAD_CREDENTIALS or status == 401:
        return "bad_credentials"
    if status in (429, 503):
        return "throttled"
    by_status = {
        301: "wrong_region",
        307: "wrong_region",
        403: "forbidden",
        404: "absence_unproven",
        408: "timeout",
        409: "conflict",
        412: "precondition",
    }
    return by_status.get(status, "server_error" if status >= 500 else "refused_request")

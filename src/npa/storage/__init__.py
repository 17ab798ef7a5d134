"""Object storage behind one seam: S3, Google, Azure, a local folder, memory."""

from npa.storage.keys import Location, path_to_uri, split_uri, uri_to_path
from npa.storage.seam import Blob, CreateOutcome, ObjectInfo, Storage, StoreOptions, is_blank
from npa.storage.store import Store, Stores, open_store, probe_conditional_create

__all__ = [
    "Blob",
    "CreateOutcome",
    "Location",
    "ObjectInfo",
    "Storage",
    "Store",
    "StoreOptions",
    "Stores",
    "is_blank",
    "open_store",
    "path_to_uri",
    "probe_conditional_create",
    "split_uri",
    "uri_to_path",
]

# Begins one task. Lines above set NPA_* variables; nothing here depends on rank or addresses.
set -eu
npa_home="$HOME/.npa-task"
mkdir -p "$npa_home/bin"
chmod 700 "$npa_home"
npa_fail() {
  echo "npa: $2" >&2
  if [ -n "${npa_system:-}" ]; then "$npa_system" "$npa_home/npa_store.py" note "$1" || :; fi
  exit "$1"
}

npa_python() {
  for npa_one in python3 "$HOME/skypilot-runtime/bin/python" /usr/bin/python3 python; do
    if command -v "$npa_one" >/dev/null 2>&1; then command -v "$npa_one"; return; fi
  done
  npa_fail 94 "there is no Python in this image"
}
npa_system="$(npa_python)"
npa_put() { # the nodes of a gang may share this home
  npa_new="$(mktemp "$npa_home/$1.XXXXXX")"
  cat >"$npa_new"
  mv "$npa_new" "$npa_home/$1"
}
npa_put npa_store.py <<'NPA_STORE_PY'
@STORE_PY@
NPA_STORE_PY
printf '%s\n' "$npa_system" >"$npa_home/system-python"
# The licence gate comes before the first download.
if [ "${NPA_LICENCE:-}" = isaac ] && [ -z "${ACCEPT_EULA:-}" ]; then
  npa_fail 95 "this task runs Isaac, whose licence was not accepted (ACCEPT_EULA is empty)"
fi

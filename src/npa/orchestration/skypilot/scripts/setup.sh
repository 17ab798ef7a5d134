# Prepares one task, after `begin.sh`; it has the same text for all tasks.
: "${npa_home:?}" "${npa_system:?}"
"$npa_system" "$npa_home/task.py" claim || exit "$?"

if [ -n "${NPA_MODEL_CACHE_DIR:-}" ]; then mkdir -p "$NPA_MODEL_CACHE_DIR"; fi

# Staged source: the pipeline's own folder, and a package that comes before what the image carries.
npa_path=""
if [ -n "${NPA_SOURCE_URI:-}" ]; then
  npa_path="$npa_home/source-${NPA_SOURCE_SHA256:-unproven}"
  "$npa_system" "$npa_home/task.py" fetch "$NPA_SOURCE_URI" "${NPA_SOURCE_SHA256:-}" "$npa_path" ||
    exit "$?"
fi
printf '%s\n' "$npa_path" >"$npa_home/source"
npa_tree=""
if [ -n "${NPA_SRC_S3_URI:-}" ]; then
  npa_tree="$npa_home/package-${NPA_SRC_SHA256:-unproven}"
  "$npa_system" "$npa_home/task.py" fetch "$NPA_SRC_S3_URI" "${NPA_SRC_SHA256:-}" "$npa_tree" ||
    exit "$?"
elif [ -d /opt/nebius-physical-ai/npa ]; then
  npa_tree=/opt/nebius-physical-ai/npa
fi
if [ -n "$npa_tree" ]; then
  if [ -d "$npa_tree/src" ]; then npa_lib="$npa_tree/src"; else npa_lib="$npa_tree"; fi
  npa_path="${npa_path:+$npa_path:}$npa_lib"
fi
printf '%s\n' "$npa_path" >"$npa_home/pythonpath"
PYTHONPATH="${npa_path}${npa_path:+${PYTHONPATH:+:}}${PYTHONPATH:-}"
export PYTHONPATH

npa_pip() { # interpreter, then what to install; images differ in what their pip allows
  npa_for="$1"; shift
  if "$npa_for" -m pip --version >/dev/null 2>&1; then
    "$npa_for" -m pip install --quiet "$@" ||
      "$npa_for" -m pip install --quiet --break-system-packages "$@" ||
      "$npa_for" -m pip install --quiet --user "$@"
  elif command -v uv >/dev/null 2>&1; then
    uv pip install --quiet --python "$npa_for" "$@"
  else
    echo "npa: $npa_for has neither pip nor uv" >&2; return 1
  fi
}
npa_install_tree() { # a list of requirements needs no build; a project does
  if [ -f "$npa_tree/requirements.txt" ] && ! [ -f "$npa_tree/pyproject.toml" ]; then
    npa_pip "$1" -r "$npa_tree/requirements.txt"
  else
    npa_pip "$1" "$npa_tree"
  fi
}
npa_imports() { "$1" -c 'import npa.cli' >/dev/null 2>&1; }

# The interpreter that will run the command: the vendor's own if the image has one.
npa_chosen=""
for npa_one in ${NPA_INTERPRETERS:-} "${NPA_BAKED_PYTHON:-}" "$npa_system"; do
  if [ -z "$npa_one" ] || ! [ -x "$npa_one" ]; then continue; fi
  case "${NPA_NEEDS_PACKAGE:-}" in
    '') ;;
    maybe)
      if [ -n "$npa_tree" ] && ! npa_imports "$npa_one"; then npa_install_tree "$npa_one" || :; fi
      ;;
    *)
      if ! npa_imports "$npa_one"; then
        if [ -z "$npa_tree" ] || [ "${NPA_REQUIRE_BAKED:-}" = 1 ]; then continue; fi
        npa_install_tree "$npa_one" || continue
        npa_imports "$npa_one" || continue
      fi
      ;;
  esac
  npa_chosen="$npa_one"
  break
done
if [ -z "$npa_chosen" ]; then
  npa_fail 94 "no interpreter here can import npa: stage the package, or use an image that has it"
fi
printf '%s\n' "$npa_chosen" >"$npa_home/python"
for npa_one in python3 npa; do
  npa_words=""
  if [ "$npa_one" = npa ]; then npa_words=" \"$npa_home/task.py\" npa"; fi
  printf '#!/bin/sh\nexec "%s"%s "$@"\n' "$npa_chosen" "$npa_words" >"$npa_home/bin/$npa_one"
  chmod 755 "$npa_home/bin/$npa_one"
done

if [ -n "${NPA_EXTRA:-}" ] && [ -f "$npa_tree/pyproject.toml" ]; then
  npa_pip "$npa_chosen" "${npa_tree}[${NPA_EXTRA}]"
fi

# One requirement a line, as "probe<tab>requirement"; what the probe finds is left alone.
npa_tab="$(printf '\t')"
printf '%s\n' "${NPA_REQUIREMENTS:-}" | while IFS="$npa_tab" read -r npa_probe npa_needed; do
  case "$npa_probe" in
    '') continue ;;
    python:*) "$npa_chosen" -c "import ${npa_probe#python:}" >/dev/null 2>&1 && continue ;;
    *) command -v "$npa_probe" >/dev/null 2>&1 && continue ;;
  esac
  npa_pip "$npa_chosen" "$npa_needed"
done

# Runs the command of one task: profile, staged source first, the recorded interpreter.
for npa_one in /etc/profile.d/*.sh; do
  # shellcheck source=/dev/null
  if [ -r "$npa_one" ]; then . "$npa_one" >/dev/null 2>&1 || :; fi
done
set -eu
# shellcheck disable=SC3040
if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi
npa_home="$HOME/.npa-task"
# A restart of the job finds its own claim; a second job of the same attempt ends here.
"$(cat "$npa_home/system-python")" "$npa_home/task.py" claim || exit "$?"
npa_python="$(cat "$npa_home/python")"
npa_path="$(cat "$npa_home/pythonpath")"
PYTHONPATH="${npa_path}${npa_path:+${PYTHONPATH:+:}}${PYTHONPATH:-}"
PATH="$npa_home/bin:$HOME/.local/bin:$PATH:$(dirname "$npa_python")"
export PYTHONPATH PATH
npa_source="$(cat "$npa_home/source")"
if [ -n "$npa_source" ]; then cd "$npa_source"; fi
if [ -n "${NPA_MODEL_CACHE_DIR:-}" ]; then mkdir -p "$NPA_MODEL_CACHE_DIR"; fi

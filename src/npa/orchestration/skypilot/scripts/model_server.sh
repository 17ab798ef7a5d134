# Serves a vision-language model on this node for the command below, and stops it at the end.
# shellcheck disable=SC2154 # npa_home and npa_python stand in run.sh, which comes before
npa_port="${NPA_VLM_PORT:-8000}"
npa_log="$npa_home/model-server.log"
"$npa_python" -c 'import vllm' >/dev/null 2>&1 || {
  echo "npa: this image has no vllm, so it cannot serve $NPA_VLM_MODEL" >&2
  "$npa_python" "$npa_home/npa_store.py" note 94 || :; exit 94;
}
# shellcheck disable=SC2086
VLLM_USE_FLASHINFER_SAMPLER="${NPA_VLM_FLASHINFER:-0}" "$npa_python" -m \
  vllm.entrypoints.openai.api_server --host 127.0.0.1 --port "$npa_port" \
  --model "$NPA_VLM_MODEL" ${NPA_VLM_FLAGS:-} >"$npa_log" 2>&1 &
npa_server=$!
npa_stop_server() { kill "$npa_server" 2>/dev/null || :; wait "$npa_server" 2>/dev/null || :; }
trap npa_stop_server EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
"$npa_python" - "$npa_port" "$NPA_VLM_MODEL" "${NPA_VLM_READY_SECONDS:-900}" "$npa_server" <<'NPA_WAIT_PY' || {
import json
import os
import sys
import time
import urllib.request

port, model, seconds, server = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
until = time.monotonic() + seconds
pause = float(os.environ.get("NPA_RETRY_PAUSE_SECONDS", "5"))
while time.monotonic() < until:
    try:
        os.kill(server, 0)
        with open("/proc/%d/stat" % server) as handle:
            if handle.read().rpartition(")")[2].split()[0] == "Z":
                sys.exit("npa: the model server ended")
    except (ProcessLookupError, FileNotFoundError):
        sys.exit("npa: the model server ended")
    try:
        with urllib.request.urlopen("http://127.0.0.1:%s/v1/models" % port, timeout=5) as answer:
            if model in [entry["id"] for entry in json.load(answer)["data"]]:
                sys.exit(0)
    except (OSError, ValueError, KeyError):
        pass
    time.sleep(pause)
sys.exit("npa: the model server was not ready after %g s" % seconds)
NPA_WAIT_PY
  tail -n 50 "$npa_log" >&2
  "$npa_python" "$npa_home/npa_store.py" note 94 || :; exit 94;
}
export NPA_VLM_ENDPOINT="http://127.0.0.1:$npa_port/v1"

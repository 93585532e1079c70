#!/usr/bin/env bash
# What only a card can say: parity there, run-to-run bits of the embedding's gradient, speed against
# PyTorch. In less than eight minutes, from a plain copy of the tree, with what Python there has.
#   benchmarks/gpu_check.sh [OUT]
# By default OUT is $OUT, else benchmarks/results/<card>/. DEVICE=cpu runs every part small, here.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
device=${DEVICE:-gpu}
python=${PYTHON:-python3}
export PYTHONPATH=. PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # PyTorch has the same card
unset NVIDIA_TF32_OVERRIDE

check() { timeout -k 5 "$1" "$python" -m benchmarks.gpu_check "${@:2}" --device "$device"; }

kind=$(check 40 kind 2> /dev/null)
if [ -z "$kind" ] && [ "$device" = gpu ] && ! nvidia-smi > /dev/null 2>&1; then
  echo 'gpu_check: no card here (neither nvidia-smi nor JAX knows one); nothing was run'
  exit 0
fi
out=${1:-${OUT:-benchmarks/results/${kind:-unknown}}}
mkdir -p "$out" || exit 1
rm -f "$out"/{environment,gradients,gradients_deterministic,speed}.json "$out"/parity.{jsonl,txt}
failed=()

part() {  # name, seconds, command: told, timed, and the next part runs whatever it says
  local name=$1 limit=$2 start=$SECONDS code=0
  shift 2
  timeout -k 5 "$limit" "$@" || code=$?
  [ "$code" = 0 ] || failed+=("$name ($([ "$code" = 124 ] && echo "over $limit s" || echo "exit code $code"))")
  echo "gpu_check: $name: exit code $code, $((SECONDS - start)) s"
}

ours=("$python" -m benchmarks.gpu_check)
flags=${XLA_FLAGS:-}
part environment 30 "${ours[@]}" environment --device "$device" --out "$out"
part parity 180 "$python" -m parity run --device "$device" --report "$out/parity.jsonl" > "$out/parity.txt"
tail -n 5 "$out/parity.txt" | cut -c1-160
part gradients 60 "${ours[@]}" gradients --device "$device" --out "$out"
part 'gradients, deterministic' 60 env XLA_FLAGS="$flags --xla_gpu_deterministic_ops=true" \
  "${ours[@]}" gradients --device "$device" --out "$out"
part speed 75 "${ours[@]}" speed --device "$device" --out "$out"

echo
check 15 summary --out "$out" || failed+=(summary)
[ ${#failed[@]} = 0 ] && echo "all parts ran, parity passed; results are in $out" && exit 0
printf 'FAILED: %s\n' "${failed[@]}"
exit 1

# Sourced by quickstart, test and gpu_check: where things are, what is missing, configure and build.
# Sets $root and $build; SINTER_BUILD_DIR names another build directory than build/.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${SINTER_BUILD_DIR:-$root/build}
jobs=$(nproc 2>/dev/null || echo 2)

say() { printf '%s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# run_logged NAME COMMAND...: the output goes to a file and is shown only when the command fails.
run_logged() {
  local name=$1 start=$SECONDS
  shift
  mkdir -p "$build/logs"
  if "$@" >"$build/logs/$name.log" 2>&1; then
    say "   done in $((SECONDS - start)) s"
  else
    tail -n 40 "$build/logs/$name.log" >&2
    die "'$*' failed; the whole output is in $build/logs/$name.log"
  fi
}

# The directory that has cuda.h and nvrtc.h. Without a CUDA toolkit both headers and libnvrtc come
# from NVIDIA's wheels, unpacked under the build directory; no GPU is needed for either.
find_cuda_headers() {
  local folder
  for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
    [ -n "$folder" ] && [ -e "$folder/include/cuda.h" ] && [ -e "$folder/include/nvrtc.h" ] &&
      cuda_include=$folder/include && return
  done
  local wheels=$build/cuda/nvidia/cu13
  if [ ! -e "$wheels/include/nvrtc.h" ]; then
    say "== no CUDA toolkit in CUDA_HOME, CUDA_PATH, /usr/local/cuda or /usr: fetching cuda.h, nvrtc.h"
    say "   and libnvrtc (60 MB) from PyPI, into $build/cuda"
    run_logged cuda-wheels python3 -m pip install --quiet --no-deps --target "$build/cuda" \
      'nvidia-cuda-nvrtc>=13,<14' 'nvidia-cuda-runtime>=13,<14'
  fi
  cuda_include=$wheels/include
  if [ -z "${SINTER_NVRTC:-}" ]; then
    SINTER_NVRTC=$(ls "$wheels"/lib/libnvrtc.so.* | head -n 1)
    export SINTER_NVRTC
    say "   export SINTER_NVRTC=$SINTER_NVRTC to use it outside this script"
  fi
}

# configure_and_build TARGET...: no target builds everything.
configure_and_build() {
  say "== packages"
  "$root/tools/install_packages" || exit 1
  find_cuda_headers
  local launcher=()
  if command -v ccache >/dev/null 2>&1; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    # Without these ccache keeps nothing that uses a precompiled header, which all targets do.
    export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
    # A precompiled header that differs in comments alone is another one: the compiler includes
    # again what is not byte by byte the file that it was made of.
    export CCACHE_COMMENTS=${CCACHE_COMMENTS:-1}
  fi
  say "== configuring in $build"
  run_logged configure cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DSINTER_CUDA_INCLUDE="$cuda_include" "${launcher[@]}"
  say "== building ${*:-everything} with $jobs jobs (some minutes the first time)"
  run_logged build cmake --build "$build" --parallel "$jobs" --target "${@:-all}"
}

# What `sinter doctor` found; it must be built.
doctor_says() { [[ $("$build/tools/sinter/sinter" doctor --json) == *"\"$1\": true"* ]]; }
has_gpu() { doctor_says can_execute; }

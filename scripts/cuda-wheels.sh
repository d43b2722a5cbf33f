#!/usr/bin/env bash
# scripts/cuda-wheels.sh [--cu12] [--all] [FOLDER] -- NVIDIA's libraries from PyPI in a Python environment of their own (default
# build/cuda), for machines without the CUDA toolkit. Neither a GPU nor a driver is needed to compile with them.
#
#     scripts/cuda-wheels.sh && NNC_CUDA_PATH=$PWD/build/cuda build/nnc doctor
#
# NVRTC of CUDA 13 (100 MB to load); --cu12: that of CUDA 12 too, which GPUs before sm_75 need; --all: also the runtime, cuBLAS, cuDNN,
# NCCL and CUPTI of CUDA 13 (2 GB). --cu12 --all: all libraries of CUDA 12 alone, the last that support sm_61 and sm_70. It needs a FOLDER
# of its own, since both versions of cuDNN lie in the same place. Exit code 5 when that is not possible here, with one line that says why.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/setup.sh

wheels="nvidia-cuda-nvrtc==13.0.88"
cu12="nvidia-cuda-nvrtc-cu12==12.9.86"
rest12="nvidia-cuda-runtime-cu12==12.9.79 nvidia-cublas-cu12==12.9.1.4 nvidia-cudnn-cu12==9.10.2.21 nvidia-nccl-cu12==2.27.5 nvidia-cuda-cupti-cu12==12.9.79"
rest="nvidia-cuda-runtime==13.0.96 nvidia-cublas==13.1.0.3 nvidia-cudnn-cu13==9.19.0.56 nvidia-nccl-cu13==2.28.9 nvidia-cuda-cupti==13.0.85"
folder=build/cuda what=
for a in "$@"; do
    case $a in
    --cu12) what=12${what#12} ;;
    --all) what=${what%all}all ;;
    -*) echo "usage: scripts/cuda-wheels.sh [--cu12] [--all] [FOLDER]" >&2; exit 2 ;;
    *) folder=$a ;;
    esac
done
case $what in
12) wheels="$wheels $cu12" ;;
all) wheels="$wheels $cu12 $rest" ;;
12all) wheels="$cu12 $rest12" ;;
esac

cannot() {
    echo "NVIDIA's wheels are not installed: $1" >&2
    exit 5
}

command -v python3 >/dev/null || nnc_install python3 >/dev/null 2>&1 || cannot "there is no python3"
if [ ! -x "$folder/bin/pip" ]; then
    # Debian keeps the means to make environments in a package of its own
    python3 -m venv "$folder" >/dev/null 2>&1 || { nnc_install python3-venv >/dev/null 2>&1 && python3 -m venv "$folder" >/dev/null 2>&1; } ||
        cannot "python3 -m venv does not work (apt-get install python3-venv)"
fi
log=$folder/pip.log
"$folder/bin/pip" install --disable-pip-version-check --no-input --retries 1 --timeout 20 $wheels >"$log" 2>&1 ||
    cannot "pip install failed ($(grep -v '^ *$' "$log" | tail -n 1 | cut -c1-120))"
echo "NVIDIA's wheels are in $folder: $wheels"

// The kernels, compiled for the emulated device.
#include "cuda/kernels/direct.cu"
#include "cuda/kernels/fused.cu"
#include "cuda/kernels/ll.cu"
#include "cuda/kernels/ll128.cu"
#include "cuda/kernels/multicast.cu"
#include "cuda/kernels/ring.cu"
#include "cuda/kernels/simple.cu"

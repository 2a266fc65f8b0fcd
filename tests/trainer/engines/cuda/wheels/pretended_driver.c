/* A driver of eight H100 that compute nothing, for checks on fake tensors: only their shapes exist.

   Loaded before CUDA's own libraries (LD_PRELOAD), it answers what torch asks of a device before any
   kernel: how many there are, which one is current, streams and events. Memory of a few megabytes is
   the host's, since torch touches each device once; more is refused, so that no check can compute
   with real tensors and take what it finds for a result. */

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define NUM_DEVICES 8
#define GIB (1024ul * 1024ul * 1024ul)
#define MOST_BYTES (32ul << 20)

static __thread int current = 0;

cudaError_t cudaGetDeviceCount(int *count) { *count = NUM_DEVICES; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = current; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { current = device; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  *left = 79 * GIB; *total = 80 * GIB; return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *facts, int device) {
  (void)device;
  memset(facts, 0, sizeof *facts);
  strcpy(facts->name, "NVIDIA H100 80GB HBM3");
  facts->totalGlobalMem = 80 * GIB;
  facts->major = 9;
  facts->minor = 0;
  facts->multiProcessorCount = 132;
  facts->warpSize = 32;
  facts->maxThreadsPerBlock = 1024;
  facts->maxThreadsPerMultiProcessor = 2048;
  facts->regsPerMultiprocessor = 65536;
  facts->sharedMemPerBlock = 49152;
  facts->sharedMemPerBlockOptin = 232448;
  facts->sharedMemPerMultiprocessor = 233472;
  facts->l2CacheSize = 50 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device) {
  (void)what; (void)device; *value = 0; return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  (void)device; (void)peer; *can = 0; return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = bytes <= MOST_BYTES ? calloc(1, bytes) : NULL;
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  (void)kind; (void)stream;
  memcpy(to, from, bytes); return cudaSuccess;
}
cudaError_t cudaFree(void *memory) { free(memory); return cudaSuccess; }

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
  (void)flags; return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void *memory) { free(memory); return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *facts, const void *memory) {
  memset(facts, 0, sizeof *facts);
  facts->type = cudaMemoryTypeUnregistered;
  facts->hostPointer = (void *)memory;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0; *greatest = -5; return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  (void)flags; (void)priority;
  *stream = malloc(1); return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  (void)stream; *priority = 0; return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { free(stream); return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { (void)stream; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { (void)stream; return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  (void)stream; (void)event; (void)flags; return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  (void)stream; *status = cudaStreamCaptureStatusNone; return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *count) {
  (void)stream; (void)id; (void)graph; (void)nodes; (void)edges; (void)count;
  *status = cudaStreamCaptureStatusNone; return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  (void)mode; return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  (void)flags; *event = malloc(1); return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  (void)event; (void)stream; return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  (void)event; (void)stream; (void)flags; return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { (void)event; return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { (void)event; return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  (void)from; (void)to; *milliseconds = 0; return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }

/* Of the driver itself, what torch's and vLLM's libraries name; none of it is called but the first. */
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  (void)device; *flags = 0; *active = 1; return CUDA_SUCCESS;
}
int never_called(void) { return CUDA_ERROR_NOT_SUPPORTED; }
#define NEVER_CALLED(name) __asm__(".globl " #name "\n.set " #name ", never_called");
NEVER_CALLED(cuCtxGetCurrent)
NEVER_CALLED(cuCtxSetCurrent)
NEVER_CALLED(cuDeviceGet)
NEVER_CALLED(cuDeviceGetAttribute)
NEVER_CALLED(cuDevicePrimaryCtxRetain)
NEVER_CALLED(cuFuncGetAttribute)
NEVER_CALLED(cuFuncSetAttribute)
NEVER_CALLED(cuFuncSetCacheConfig)
NEVER_CALLED(cuGetErrorString)
NEVER_CALLED(cuLaunchCooperativeKernel)
NEVER_CALLED(cuLaunchKernel)
NEVER_CALLED(cuLinkAddData_v2)
NEVER_CALLED(cuLinkComplete)
NEVER_CALLED(cuLinkCreate_v2)
NEVER_CALLED(cuModuleGetFunction)
NEVER_CALLED(cuModuleLoad)
NEVER_CALLED(cuModuleLoadData)
NEVER_CALLED(cuModuleLoadDataEx)
NEVER_CALLED(cuModuleUnload)
NEVER_CALLED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NEVER_CALLED(cuPointerGetAttribute)
NEVER_CALLED(cuTensorMapEncodeTiled)
NEVER_CALLED(cuGetProcAddress_v2)
NEVER_CALLED(cuMemAddressFree)
NEVER_CALLED(cuMemAddressReserve)
NEVER_CALLED(cuMemCreate)
NEVER_CALLED(cuMemGetAllocationGranularity)
NEVER_CALLED(cuMemMap)
NEVER_CALLED(cuMemRelease)
NEVER_CALLED(cuMemSetAccess)
NEVER_CALLED(cuMemUnmap)

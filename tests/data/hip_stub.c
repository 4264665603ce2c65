/* A stand-in for libamdhip64: the part of HIP's C ABI that Tessera calls, on host memory, with a log of every call.
 *
 * Kernels are C functions of this file, found by name: the machine code that is loaded is hashed into the log and not run. Environment:
 * STUB_LOG (file), STUB_ARCHES ("gfx1100,gfx1151": one device each), STUB_COUNT (what hipGetDeviceCount says). stub_fail() makes the
 * next calls of a function fail.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int hipError_t;
enum { Success = 0, InvalidValue = 1, OutOfMemory = 2, InvalidConfiguration = 9, NoDevice = 100, InvalidDevice = 101, InvalidImage = 200, NotFound = 500 };

static FILE *out;
static hipError_t last;
static int current, live, fail_code, fail_times;
static char fail_name[64];

static void put(const char *text) {
    if (!out) {
        const char *path = getenv("STUB_LOG");
        out = path ? fopen(path, "a") : stderr;
    }
    fputs(text, out);
    fputc('\n', out);
    fflush(out);
}

#define LOG(...)                                    \
    do {                                            \
        char line_[4096];                           \
        snprintf(line_, sizeof line_, __VA_ARGS__); \
        put(line_);                                 \
    } while (0)

void stub_fail(const char *name, int code, int times) {
    strncpy(fail_name, name, sizeof fail_name - 1);
    fail_code = code;
    fail_times = times;
}

int stub_live(void) { return live; }

static hipError_t status(const char *name, hipError_t code) {
    if (code == Success && fail_times > 0 && !strcmp(name, fail_name)) {
        fail_times--;
        code = fail_code;
    }
    if (code != Success) last = code;
    return code;
}

#define FAIL_IF_TOLD                                 \
    do {                                             \
        hipError_t code_ = status(__func__, Success); \
        if (code_ != Success) return code_;          \
    } while (0)

/* The arch of device `index`, or NULL. */
static const char *arch_of(int index) {
    static char text[256];
    const char *all = getenv("STUB_ARCHES");
    strncpy(text, all ? all : "gfx1151", sizeof text - 1);
    char *arch = strtok(text, ",");
    for (; index > 0 && arch; index--) arch = strtok(NULL, ",");
    return arch;
}

hipError_t hipGetDeviceCount(int *count) {
    LOG("hipGetDeviceCount");
    const char *told = getenv("STUB_COUNT");
    for (*count = 0; arch_of(*count); ++*count) {}
    if (told) *count = atoi(told);
    return status(__func__, Success);
}

hipError_t hipGetDevice(int *index) {
    *index = current;
    return status(__func__, Success);
}

hipError_t hipSetDevice(int index) {
    LOG("hipSetDevice %d", index);
    if (!arch_of(index)) return status(__func__, InvalidDevice);
    current = index;
    return status(__func__, Success);
}

/* hipDeviceProp_tR0600, HIP 6 and later. */
typedef struct {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
    int maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3];
    int maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3];
    int maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3];
    int maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
    int memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
    int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
    int canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, sparseHipArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported;
    int memoryPoolsSupported, gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingHipArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers, reserved[63];
    int hipReserved[32];
    char gcnArchName[256];
} Properties;

hipError_t hipGetDevicePropertiesR0600(Properties *properties, int index) {
    LOG("hipGetDeviceProperties %d", index);
    const char *arch = arch_of(index);
    if (!arch) return status("hipGetDeviceProperties", InvalidDevice);
    strcpy(properties->name, "Stub Graphics");
    snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s", arch);
    return status("hipGetDeviceProperties", Success);
}

hipError_t hipMalloc(void **memory, size_t size) {
    LOG("hipMalloc %zu", size);
    *memory = NULL;
    FAIL_IF_TOLD;
    if (posix_memalign(memory, 256, size)) return status(__func__, OutOfMemory);
    memset(*memory, 0xA5, size);
    live++;
    return Success;
}

hipError_t hipFree(void *memory) {
    LOG("hipFree");
    FAIL_IF_TOLD;
    free(memory);
    live--;
    return Success;
}

hipError_t hipMemcpy(void *target, const void *source, size_t size, int kind) {
    static const char *kinds[] = {"HostToHost", "HostToDevice", "DeviceToHost"};
    LOG("hipMemcpy %s %zu", kind >= 0 && kind < 3 ? kinds[kind] : "?", size);
    FAIL_IF_TOLD;
    memcpy(target, source, size);
    return Success;
}

static uint32_t hash(const unsigned char *data, size_t size) {
    uint32_t value = 2166136261u;
    for (size_t i = 0; i < size; i++) value = (value ^ data[i]) * 16777619u;
    return value;
}

hipError_t hipModuleLoadData(void **module, const void *image) {
    LOG("hipModuleLoadData %08x", hash(image, 16));
    *module = NULL;
    FAIL_IF_TOLD;
    if (memcmp(image, "\177ELF", 4)) return status(__func__, InvalidImage);
    *module = malloc(1);
    return Success;
}

/* ---- kernels: what a GPU would do with (ptr, extent, byte stride, ...) ---------------------------------------------------------- */

typedef void Kernel(const char *kernarg, unsigned programs);

static void count(const char *kernarg, unsigned programs) { /* (out: i64[], n: i64): out[i] = i * n */
    int64_t a[4];
    memcpy(a, kernarg, sizeof a);
    for (int64_t i = 0; i < programs && i < a[1]; i++) *(int64_t *)((char *)a[0] + i * a[2]) = i * a[3];
}

static void shift(const char *kernarg, unsigned programs) { /* (x: f32[], y: f32[]): y[i] = x[i] + 1 */
    int64_t a[6];
    memcpy(a, kernarg, sizeof a);
    for (int64_t i = 0; i < programs && i < a[4]; i++) *(float *)((char *)a[3] + i * a[5]) = *(float *)((char *)a[0] + i * a[2]) + 1;
}

static void vector_add(const char *kernarg, unsigned programs) { /* (x, y, z: f32[]): z = x + y, all of it by one program */
    int64_t a[9];
    memcpy(a, kernarg, sizeof a);
    for (int64_t i = 0; programs && i < a[7]; i++)
        *(float *)((char *)a[6] + i * a[8]) = *(float *)((char *)a[0] + i * a[2]) + *(float *)((char *)a[3] + i * a[5]);
}

hipError_t hipModuleUnload(void *module) {
    LOG("hipModuleUnload");
    free(module);
    return status(__func__, Success);
}

const char *hipGetErrorString(hipError_t code) {
    return code ? "an error of the stand-in" : "no error";
}

hipError_t hipModuleGetFunction(void **function, void *module, const char *name) {
    LOG("hipModuleGetFunction %s", name);
    *function = NULL;
    FAIL_IF_TOLD;
    Kernel *kernel = !strcmp(name, "count") ? count : !strcmp(name, "shift") ? shift : !strcmp(name, "vector_add") ? vector_add : NULL;
    if (!kernel || !module) return status(__func__, NotFound);
    *function = (void *)kernel;
    return Success;
}

hipError_t hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                 unsigned shared, void *stream, void **params, void **extra) {
    if (params || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3) return status(__func__, InvalidValue);
    const unsigned char *kernarg = extra[1];
    size_t size = *(size_t *)extra[3];
    char text[2048] = "";
    for (size_t i = 0; i < size && i < 1000; i++) sprintf(text + 2 * i, "%02x", kernarg[i]);
    LOG("hipModuleLaunchKernel grid %u %u %u block %u %u %u shared %u stream %#zx kernarg %s", gx, gy, gz, bx, by, bz, shared, (size_t)stream, text);
    FAIL_IF_TOLD;
    if (bx * by * bz > 1024) return status(__func__, InvalidConfiguration);
    ((Kernel *)function)((const char *)kernarg, gx);
    return Success;
}

hipError_t hipEventCreate(void **event) {
    LOG("hipEventCreate");
    *event = NULL;
    FAIL_IF_TOLD;
    *event = malloc(1);
    live++;
    return Success;
}

hipError_t hipEventRecord(void *event, void *stream) {
    LOG("hipEventRecord stream %#zx", (size_t)stream);
    return status(__func__, event ? Success : InvalidValue);
}

hipError_t hipEventSynchronize(void *event) {
    LOG("hipEventSynchronize");
    return status(__func__, event ? Success : InvalidValue);
}

hipError_t hipEventElapsedTime(float *milliseconds, void *start, void *stop) {
    LOG("hipEventElapsedTime");
    *milliseconds = 2.5f;
    return status(__func__, start && stop ? Success : InvalidValue);
}

hipError_t hipEventDestroy(void *event) {
    LOG("hipEventDestroy");
    free(event);
    live--;
    return status(__func__, Success);
}

hipError_t hipGetLastError(void) {
    LOG("hipGetLastError");
    hipError_t code = last;
    last = Success;
    return code;
}

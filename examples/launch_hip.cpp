// Launch a Tessera code object from C++ with HIP alone: no Python, no Tessera. docs/abi.md describes the layout.
//
//   python examples/vector_add.py --save vector_add            writes vector_add.tsa and vector_add.hsaco, prints kernel name and threads
//   hipcc examples/launch_hip.cpp -o launch_hip
//   ./launch_hip vector_add.hsaco vector_add 128 1024           file, kernel, threads of a workgroup, elements of a program

#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

static void check(hipError_t status, const char *call) {
    if (status != hipSuccess) {
        std::fprintf(stderr, "%s failed: %s\n", call, hipGetErrorString(status));
        std::exit(1);
    }
}
#define CHECK(call) check(call, #call)

// An array of rank 1 in the kernarg segment. Rank n has n extents, then n strides.
struct Array1 {
    void *address;   // of element 0
    int64_t extent;  // in elements
    int64_t stride;  // in bytes
};

// vector_add(x, y, z): three arrays of float32. Fields lie at their natural alignment, as a C struct lays them out.
struct Kernarg {
    Array1 x, y, z;
};

int main(int argc, char **argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: %s FILE.hsaco KERNEL THREADS BLOCK\n", argv[0]);
        return 2;
    }
    const unsigned threads = std::strtoul(argv[3], nullptr, 10);
    const int64_t block = std::strtoll(argv[4], nullptr, 10);
    const int64_t n = 100'003;  // ragged: the last program has a tail

    std::ifstream file(argv[1], std::ios::binary);
    std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (image.empty()) {
        std::fprintf(stderr, "can't read %s\n", argv[1]);
        return 2;
    }
    hipModule_t module;
    hipFunction_t function;
    CHECK(hipModuleLoadData(&module, image.data()));
    CHECK(hipModuleGetFunction(&function, module, argv[2]));

    std::vector<float> x(n), y(n), z(n, -1.0f);
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0.5f * static_cast<float>(i);
        y[i] = 3.0f - static_cast<float>(i % 7);
    }
    const size_t bytes = n * sizeof(float);
    void *dx, *dy, *dz;
    CHECK(hipMalloc(&dx, bytes));
    CHECK(hipMalloc(&dy, bytes));
    CHECK(hipMalloc(&dz, bytes));
    CHECK(hipMemcpy(dx, x.data(), bytes, hipMemcpyHostToDevice));
    CHECK(hipMemcpy(dy, y.data(), bytes, hipMemcpyHostToDevice));
    CHECK(hipMemcpy(dz, z.data(), bytes, hipMemcpyHostToDevice));

    const int64_t stride = sizeof(float);
    Kernarg kernarg = {{dx, n, stride}, {dy, n, stride}, {dz, n, stride}};
    size_t size = sizeof kernarg;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &kernarg, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_END};
    const unsigned programs = static_cast<unsigned>((n + block - 1) / block);
    CHECK(hipModuleLaunchKernel(function, programs, 1, 1, threads, 1, 1, 0, nullptr, nullptr, extra));
    CHECK(hipMemcpy(z.data(), dz, bytes, hipMemcpyDeviceToHost));  // waits for the kernel

    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += z[i] != x[i] + y[i];
    std::printf("%s: %lld elements, %lld wrong\n", argv[2], static_cast<long long>(n), static_cast<long long>(wrong));
    CHECK(hipFree(dx));
    CHECK(hipFree(dy));
    CHECK(hipFree(dz));
    CHECK(hipModuleUnload(module));
    return wrong != 0;
}

// What the kernels here share: plain C for AMDGPU, without a device library.
#define KERNEL(threads) __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(threads, threads)))
#define GLOBAL __attribute__((address_space(1)))
#define LDS static __attribute__((address_space(3), loader_uninitialized))

static inline int item(void) { return __builtin_amdgcn_workitem_id_x(); }
static inline int group(void) { return __builtin_amdgcn_workgroup_id_x(); }

// All waves of the workgroup meet, and see what the others wrote.
static inline void barrier(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

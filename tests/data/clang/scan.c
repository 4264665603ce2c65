// out = the running sum of in (one workgroup, 256 at a time), with a running total that waves hand on through LDS; doubles.
#include "common.h"

LDS double tile[256];

KERNEL(256) void kernel(GLOBAL const double *in, GLOBAL double *out, int n) {
  int t = item();
  double carried = 0.0;
  for (int start = 0; start < n; start += 256) {
    barrier();
    tile[t] = start + t < n ? in[start + t] : 0.0;
    for (int step = 1; step < 256; step *= 2) {
      barrier();
      double before = t >= step ? tile[t - step] : 0.0;
      barrier();
      tile[t] += before;
    }
    if (start + t < n) out[start + t] = carried + tile[t];
    barrier();
    carried += tile[255];
  }
}

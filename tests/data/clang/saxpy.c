// y += a * x, with a grid that is wider than the arrays.
#include "common.h"

KERNEL(256) void kernel(GLOBAL const float *x, GLOBAL float *y, float a, int n) {
  int i = group() * 256 + item();
  if (i < n) y[i] = a * x[i] + y[i];
}

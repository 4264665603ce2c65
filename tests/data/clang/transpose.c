// out = in transposed, 16-bit elements, 32 x 32 tiles through LDS with a padded row; ragged edges.
#include "common.h"

LDS unsigned short tile[32][33];

KERNEL(256) void kernel(GLOBAL const unsigned short *in, GLOBAL unsigned short *out, int rows, int columns) {
  int x = item() & 31, y = item() >> 5, r0 = group() * 32, c0 = __builtin_amdgcn_workgroup_id_y() * 32;
  for (int i = y; i < 32; i += 8)
    if (r0 + i < rows && c0 + x < columns) tile[i][x] = in[(long)(r0 + i) * columns + c0 + x];
  barrier();
  for (int i = y; i < 32; i += 8)
    if (c0 + i < columns && r0 + x < rows) out[(long)(c0 + i) * rows + r0 + x] = tile[x][i];
}

// Dot products of float32 rows with row-major weights (or keys) of either dtype.
#pragma once
#include <algorithm>
#include <cstring>

#include "panels.h"
#include "vectors.h"

enum { TILE_ROWS = 8 };  // a tile of row-major weights covers 8 output features

// out[n][m] = w[n] . x[m] for NB weight rows; rows from `rows` on repeat the last one, so that every sum is made by a
// full tile and no remainder code adds in another order.
template <class T, int NB, int MB>
static inline void dot_tile(const T* w, int64_t ws, int rows, const float* x, int64_t xs, int k, float out[NB][MB]) {
  static_assert(NB * MB % 2 == 0 && NB * MB >= 6, "tiles are summed four at a time");
  const T* wn[NB];
  for (int n = 0; n < NB; n++) wn[n] = w + std::min(n, rows - 1) * ws;
  vf acc[NB][MB] = {};
  for (int i = 0; i < k; i += BLOCK) {
    for (int n = 0; n < NB; n++) __builtin_prefetch(wn[n] + TILE_ROWS * ws + i);  // the next tile: worth 40 % at 4 rows
    for (int v = 0; v < VECS; v++) {
      vf xv[MB];
      for (int m = 0; m < MB; m++) xv[m] = load(x + m * xs + i + v * LANES);
      for (int n = 0; n < NB; n++) {
        vf wv = read_part(wn[n] + i, v);
        for (int m = 0; m < MB; m++) acc[n][m] += wv * xv[m];
      }
    }
  }
  const vf* flat = &acc[0][0];
  float* to = &out[0][0];
  for (int i = 0; i < NB * MB; i += 4) {
    int j = std::min(i, NB * MB - 4);
    v4 s = sum4(flat[j], flat[j + 1], flat[j + 2], flat[j + 3]);
    memcpy(to + j, &s, sizeof s);
  }
}

template <class T, int NB, int MB, class F>
static inline void dot_rows(const T* w, int64_t ws, int n0, int rows, const float* x, int64_t xs, int m0, int k, F sink) {
  float out[NB][MB];
  for (int n = 0; n < rows; n += NB) {
    dot_tile<T, NB, MB>(w + n * ws, ws, rows - n, x, xs, k, out);
    for (int a = 0; a < std::min(NB, rows - n); a++)
      for (int m = 0; m < MB; m++) sink(m0 + m, n0 + n + a, out[a][m]);
  }
}

// sink(m, n, x[m] . w[n]) for m < M and begin <= n < end; w has row stride ws, packed x has row stride xs.
template <class T, class F>
static void dots(const T* w, int64_t ws, int begin, int end, const float* x, int64_t xs, int M, int k, F sink) {
  for (int first = 0; first < M; first += CHUNK)
    for (int n = begin; n < end; n += TILE_ROWS) {
      int rows = std::min<int>(TILE_ROWS, end - n), last = std::min<int>(M, first + CHUNK);
      const T* wn = w + n * ws;
      for (int m = first; m < last;) {
        const float* xm = x + m * xs;
        int left = last - m;
        if (left == 1) { dot_rows<T, 8, 1>(wn, ws, n, rows, xm, xs, m, k, sink); m += 1; }
        else if (left == 2) { dot_rows<T, 4, 2>(wn, ws, n, rows, xm, xs, m, k, sink); m += 2; }
        else if (left == 3) { dot_rows<T, 2, 3>(wn, ws, n, rows, xm, xs, m, k, sink); m += 3; }
        else { dot_rows<T, 2, 4>(wn, ws, n, rows, xm, xs, m, k, sink); m += 4; }
      }
    }
}

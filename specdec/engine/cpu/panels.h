// Weights [n, k] repacked so that one load gives the same input element of 16 outputs: no horizontal sums, and the
// inputs are broadcast. Every output is one chain of k fused multiply-adds, whatever the shape of the tile it is in.
#pragma once
#include <algorithm>
#include <type_traits>

#include "vectors.h"

enum { CHUNK = 64 };  // rows of x that stay in the second-level cache while the weights stream by
enum { AHEAD = 96 };  // panel rows to prefetch: 3 KiB of bfloat16

// panels [ceil(n / 16)][k][16]: rows follow the order of packed inputs, and read_block splits a row into natural order.
template <class T> static void pack(const T* w, T* panels, int n, int k) {
#pragma omp parallel for
  for (int p = 0; p < (n + BLOCK - 1) / BLOCK; p++)
    for (int i = 0; i < k; i++)
      for (int j = 0; j < BLOCK; j++) {
        int o = p * BLOCK + packed<T>(j);
        panels[((int64_t)p * k + packed<T>(i)) * BLOCK + j] = o < n ? w[(int64_t)o * k + i] : T{};
      }
}

// out[m][16 * NP] = x[m] . w of NP panels that lie one after another.
template <class T, int NP, int MB>
static inline void panel_tile(const T* w, const float* x, int k, float out[MB][NP * BLOCK]) {
  vf acc[NP][MB][VECS] = {};
  const int64_t panel = (int64_t)k * BLOCK;
  for (int i = 0; i < k; i++) {
    for (int p = 0; p < NP; p++) {
      const T* row = w + p * panel + i * BLOCK;
      __builtin_prefetch(row + AHEAD * BLOCK);
      vf wv[VECS];
      read_block(row, wv);
      for (int m = 0; m < MB; m++) {
        vf xv = x[(int64_t)m * k + i] - (vf){};  // a plain broadcast: unlike + 0, - 0 changes no value
        for (int v = 0; v < VECS; v++) acc[p][m][v] += wv[v] * xv;
      }
    }
  }
  for (int m = 0; m < MB; m++)
    for (int p = 0; p < NP; p++)
      for (int v = 0; v < VECS; v++) save(out[m] + p * BLOCK + v * LANES, acc[p][m][v]);
}

// Outputs begin <= n < end of MB rows of x, NP panels at a time, the rest one panel at a time.
template <class T, int NP, int MB, class F>
static inline void panel_rows(const T* panels, int begin, int end, const float* x, int m0, int k, F sink) {
  int n = begin;
  auto tile = [&](auto count) {
    float out[MB][count.value * BLOCK];
    panel_tile<T, count.value, MB>(panels + (int64_t)n * k, x + (int64_t)m0 * k, k, out);
    constexpr int wide = count.value * BLOCK;
    auto emit = [&](auto width) {
      for (int m = 0; m < MB; m++)
        for (int j = 0; j < int(width); j++) sink(m0 + m, n + j, out[m][j]);
    };
    if (n + wide <= end) emit(std::integral_constant<int, wide>{});  // a known width lets the compiler vectorise
    else emit(end - n);
    n += wide;
  };
  while (n + NP * BLOCK <= end) tile(std::integral_constant<int, NP>{});
  while (n < end) tile(std::integral_constant<int, 1>{});
}

// sink(m, n, x[m] . w[n]) for m < M and begin <= n < end; begin is a multiple of 16, packed x has row stride k.
template <class T, class F>
static void panel_dots(const T* panels, int begin, int end, const float* x, int M, int k, F sink) {
  enum { WIDE = LANES / 8, GROUP = 4 * WIDE * BLOCK };  // enough accumulators to hide the latency of an addition
  for (int first = 0; first < M; first += CHUNK) {
    int rows = std::min<int>(CHUNK, M - first), parts = (rows + 5) / 6;
    for (int n = begin; n < end; n += GROUP) {
      int stop = std::min<int>(end, n + GROUP);
      for (int part = 0; part < parts; part++) {
        int m = first + rows * part / parts;
        switch (first + rows * (part + 1) / parts - m) {
          case 1: panel_rows<T, 4 * WIDE, 1>(panels, n, stop, x, m, k, sink); break;
          case 2: panel_rows<T, 2 * WIDE, 2>(panels, n, stop, x, m, k, sink); break;
          case 3: panel_rows<T, 2 * WIDE, 3>(panels, n, stop, x, m, k, sink); break;
          case 4: panel_rows<T, WIDE, 4>(panels, n, stop, x, m, k, sink); break;
          case 5: panel_rows<T, WIDE, 5>(panels, n, stop, x, m, k, sink); break;
          default: panel_rows<T, WIDE, 6>(panels, n, stop, x, m, k, sink);
        }
      }
    }
  }
}

// What a stack does to single rows: norms, rotations, and linear maps whose outputs stay in packed order.
#pragma once
#include "causal.h"
#include "layer.h"

enum { EVERY_THREAD = 16 };  // up to this many rows each thread computes all norms itself, which saves a barrier

template <class T> static void packed_norm(const T* x, const float* scale, float eps, int n, float* out) {
  vf total = {};
  for (int i = 0; i < n; i += BLOCK) {
    vf v[VECS];
    read_packed(x + i, v);
    for (int j = 0; j < VECS; j++) total += v[j] * v[j];
  }
  float r = 1.0f / std::sqrt(sum(total) / n + eps);
  for (int i = 0; i < n; i += BLOCK) {
    vf v[VECS];
    read_packed(x + i, v);
    for (int j = 0; j < VECS; j++) save(out + i + j * LANES, v[j] * r * load(scale + i + j * LANES));
  }
}

// The norm, or without a scale the row as it is.
template <class T> static void packed_input(const T* x, const float* scale, float eps, int n, float* out) {
  if (scale) return packed_norm(x, scale, eps, n, out);
  for (int i = 0; i < n; i += BLOCK) {
    vf v[VECS];
    read_packed(x + i, v);
    save_block(out + i, v);
  }
}

// Norm of `rows` rows into packed floats: by every thread for itself, or shared out and followed by a barrier.
template <class F> static float* normed(int rows, int n, float* shared, Scratch& scratch, F norm) {
  if (rows <= EVERY_THREAD) {
    float* own = scratch.need((size_t)rows * n);
    for (int m = 0; m < rows; m++) norm(m, own + (size_t)m * n);
    return own;
  }
  for (int m = omp_get_thread_num(); m < rows; m += omp_get_num_threads()) norm(m, shared + (size_t)m * n);
#pragma omp barrier
  return shared;
}

// sink(m, n, block) of this thread's outputs, bias added.
template <class T, class F> static void blocks(const Linear& l, const float* x, int M, F sink) {
  Range r = share(l.n);
  if (l.bias == nullptr) return panel_blocks((const T*)l.panels, r.begin, r.end, x, M, l.k, sink);
  panel_blocks((const T*)l.panels, r.begin, r.end, x, M, l.k, [&](int m, int n, const vf block[VECS]) {
    T bias[BLOCK] = {};
    memcpy(bias, (const T*)l.bias + n, std::min<int>(BLOCK, l.n - n) * sizeof(T));
    vf out[VECS];
    read_block(bias, out);
    for (int v = 0; v < VECS; v++) out[v] += block[v];
    sink(m, n, out);
  });
}

// One head [D] in packed order: optional norm, then rotation by the packed tables.
template <class T>
static void rotate_packed(const float* x, const float* norm, float eps, const float* cos, const float* sin, int D, float* out) {
  float y[1024];
  if (norm) packed_norm(x, norm, eps, D, y);
  else memcpy(y, x, D * sizeof(float));
  int half = D / 2;
  if (half % BLOCK == 0) {
    for (int i = 0; i < half; i += LANES) {
      vf a = load(y + i), b = load(y + i + half);
      save(out + i, a * load(cos + i) - b * load(sin + i));
      save(out + i + half, b * load(cos + i + half) + a * load(sin + i + half));
    }
    return;
  }
  for (int i = 0; i < D; i++) {
    int p = packed<T>(i), other = packed<T>(i < half ? i + half : i - half);
    out[p] = y[p] * cos[p] + (i < half ? -y[other] : y[other]) * sin[p];
  }
}

template <class T> static void store_head(const float* x, int D, T* out) {
  for (int i = 0; i < D; i += BLOCK) {
    vf v[VECS];
    for (int j = 0; j < VECS; j++) v[j] = load(x + i + j * LANES);
    store_block(out + i, v);
  }
}

// One forward of all decoder layers over the tokens of several requests, in one parallel region.
//
// Vectors of 16 floats stay in packed order from norm to norm (see vectors.h), so nothing is shuffled in between. Every
// request reads and writes its own row of the caches; a query sees what stands at or before its position.
#pragma once
#include "causal.h"
#include "layer.h"

enum { EVERY_THREAD = 16 };  // up to this many rows each thread computes all norms itself, which saves a barrier

struct StackLayer {
  const Layer* layer;
  const float *norm1, *norm2, *q_norm, *k_norm;  // scales in packed order
  void *keys, *values;                           // [rows, kv_heads, capacity, head_dim]
  int32_t window, pad;                           // positions a query sees, itself included; 0 = all
};
struct Stack {
  const StackLayer* layers;
  const float *norm, *cos, *sin;  // final scale; rotary tables [positions, head_dim]; all in packed order
  const Linear* head;
  int64_t row, kv_head;  // strides of the caches in elements
  int32_t count;
  float eps;
};
struct Requests {  // R of them; tokens stand request after request
  const int32_t *first, *tokens, *start, *row;  // [R]: index of the first token, tokens, their first position, cache row
  int32_t count, pad;
};
struct Outputs {
  const int32_t* wanted;      // [W] tokens whose logits are computed
  void *logits, *last, *aux;  // [W, vocab]; [M, H] after the final norm, or null; [M, A * H] by boundaries
  const int32_t* boundaries;  // [A]: i = what enters layer i
  int32_t wanted_count, boundary_count;
};

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

// Norm of `rows` rows into packed floats: by every thread for itself, or shared out and followed by a barrier.
template <class F> static float* normed(int rows, int n, float* shared, F norm) {
  if (rows <= EVERY_THREAD) {
    float* own = norm_scratch.need((size_t)rows * n);
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

struct Work { float *q, *attended, *h, *hn, *gate, *up, *proj; int M; };

// Queries of token m from proj [M, q | k | v]; keys and values go to the request's cache row.
template <class T>
static void rotate_and_cache(const Stack* S, const StackLayer& SL, const Work& w, int m, int position, int row, int h) {
  const Layer* L = SL.layer;
  int D = L->head_dim, wide = L->q.n + 2 * L->k.n;
  const float *p = w.proj + (size_t)m * wide + h * D, *cos = S->cos + (size_t)position * D, *sin = S->sin + (size_t)position * D;
  auto cached = [&](void* to, int head) { return (T*)to + row * S->row + head * S->kv_head + (int64_t)position * D; };
  float y[1024];
  if (h < L->heads) {
    rotate_packed<T>(p, SL.q_norm, L->eps_q, cos, sin, D, y);
    float* out = w.q + ((size_t)m * L->heads + h) * D;
    for (int i = 0; i < D; i += LANES) save(out + i, rounded<T>(load(y + i)) * L->scale);
  } else if (h < L->heads + L->kv_heads) {
    rotate_packed<T>(p, SL.k_norm, L->eps_k, cos, sin, D, y);
    store_head(y, D, cached(SL.keys, h - L->heads));
  } else {
    store_head(p, D, cached(SL.values, h - L->heads - L->kv_heads));
  }
}

// Attention of all requests: tasks of up to 4 query rows that share a KV head.
template <class T> static void attend(const Stack* S, const StackLayer& SL, const Requests* B, const Work& w, int nt) {
  const Layer* L = SL.layer;
  int D = L->head_dim, group = L->heads / L->kv_heads, task = 0, me = omp_get_thread_num();
  for (int r = 0; r < B->count; r++) {
    int Q = B->tokens[r], rows = group * Q, step = B->count * L->kv_heads * ((rows + 3) / 4) >= 2 * nt ? 4 : 1;
    for (int kh = 0; kh < L->kv_heads; kh++) {
      const T* ks = (const T*)SL.keys + B->row[r] * S->row + kh * S->kv_head;
      const T* vs = (const T*)SL.values + B->row[r] * S->row + kh * S->kv_head;
      for (int c = 0; c < rows; c += step) {
        if (task++ % nt != me) continue;
        const float* qs[4]; float* os[4]; Span spans[4];
        int count = std::min(step, rows - c);
        for (int i = 0; i < count; i++) {
          int t = (c + i) / group, head = kh * group + (c + i) % group;
          size_t offset = ((size_t)(B->first[r] + t) * L->heads + head) * D;
          qs[i] = w.q + offset; os[i] = w.attended + offset;
          int to = B->start[r] + t + 1;
          spans[i] = {SL.window ? std::max(0, to - SL.window) : 0, to};
        }
        if (count == 4) attend_spans<T, 4>(D, qs, ks, vs, spans, os);
        else for (int i = 0; i < count; i++) attend_spans<T, 1>(D, qs + i, ks, vs, spans + i, os + i);
      }
    }
  }
}

template <class T> static void copy_boundary(const T* x, int H, int M, int which, const Outputs* O) {
  for (int a = 0; a < O->boundary_count; a++)
    if (O->boundaries[a] == which)
      for (int m = omp_get_thread_num(); m < M; m += omp_get_num_threads())
        memcpy((T*)O->aux + ((size_t)m * O->boundary_count + a) * H, x + (size_t)m * H, H * sizeof(T));
}

static inline vf gated(vf a, int activation) {
  vf z = activation ? 1.5957691216f * (a + 0.044715f * a * a * a) : a;
  return a / (1.0f + vexp(-z));
}

template <class T>
static void stack_layer(const Stack* S, int index, const Requests* B, const int32_t* request, const Work& w, T* x, int nt) {
  const StackLayer& SL = S->layers[index];
  const Layer* L = SL.layer;
  int M = w.M, H = L->q.k, I = L->gate.n, all = L->heads + 2 * L->kv_heads, wide = L->q.n + 2 * L->k.n, at = 0;
  float* xn = normed(M, H, w.hn, [&](int m, float* out) { packed_norm(x + (size_t)m * H, SL.norm1, L->eps1, H, out); });
  for (const Linear* l : {&L->q, &L->k, &L->v}) {
    blocks<T>(*l, xn, M, [&](int m, int n, const vf b[VECS]) { save_block(w.proj + (size_t)m * wide + at + n, b); });
    at += l->n;
  }
#pragma omp barrier
  for (int task = omp_get_thread_num(); task < M * all; task += nt) {
    int m = task / all, r = request[m];
    rotate_and_cache<T>(S, SL, w, m, B->start[r] + m - B->first[r], B->row[r], task % all);
  }
#pragma omp barrier
  attend<T>(S, SL, B, w, nt);
#pragma omp barrier
  blocks<T>(L->o, w.attended, M, [&](int m, int n, const vf b[VECS]) {
    vf v[VECS];
    read_block(x + (size_t)m * H + n, v);
    for (int i = 0; i < VECS; i++) v[i] += b[i];
    save_block(w.h + (size_t)m * H + n, v);
  });
#pragma omp barrier
  float* hn = normed(M, H, w.hn, [&](int m, float* out) { packed_norm(w.h + (size_t)m * H, SL.norm2, L->eps2, H, out); });
  blocks<T>(L->gate, hn, M, [&](int m, int n, const vf b[VECS]) { save_block(w.gate + (size_t)m * I + n, b); });
  blocks<T>(L->up, hn, M, [&](int m, int n, const vf b[VECS]) {
    vf v[VECS];
    for (int i = 0; i < VECS; i++) v[i] = b[i] * gated(load(w.gate + (size_t)m * I + n + i * LANES), L->activation);
    save_block(w.up + (size_t)m * I + n, v);
  });
#pragma omp barrier
  blocks<T>(L->down, w.up, M, [&](int m, int n, const vf b[VECS]) {
    vf v[VECS];
    for (int i = 0; i < VECS; i++) v[i] = b[i] + load(w.h + (size_t)m * H + n + i * LANES);
    store_block(x + (size_t)m * H + n, v);
  });
#pragma omp barrier
}

// Final norm of the wanted tokens (all of them into O->last, when asked for), then their logits.
template <class T> static void stack_head(const Stack* S, const Work& w, const T* x, int H, const Outputs* O) {
  auto norm = [&](int m, float* out) {
    packed_norm(x + (size_t)m * H, S->norm, S->eps, H, out);
    for (int i = 0; i < H; i += LANES) save(out + i, rounded<T>(load(out + i)));
  };
  if (O->last) {
    float* own = norm_scratch.need(H);
    for (int m = omp_get_thread_num(); m < w.M; m += omp_get_num_threads()) {
      norm(m, own);
      store_head(own, H, (T*)O->last + (size_t)m * H);
    }
  }
  const Linear& l = *S->head;
  float* rows = normed(O->wanted_count, H, w.hn, [&](int i, float* out) { norm(O->wanted[i], out); });
  blocks<T>(l, rows, O->wanted_count, [&](int m, int n, const vf b[VECS]) {
    T* out = (T*)O->logits + (size_t)m * l.n + n;
    if (n + BLOCK <= l.n) return store_block(out, b);
    T part[BLOCK];
    store_block(part, b);
    memcpy(out, part, (l.n - n) * sizeof(T));
  });
}

// x [M, H]: embedded tokens, overwritten by what leaves the last layer.
template <class T> static void stack(const Stack* S, const Requests* B, T* x, const Outputs* O, int nt) {
  const Layer* L = S->layers[0].layer;
  int last = B->count - 1, M = B->first[last] + B->tokens[last], H = L->q.k, I = L->gate.n, A = L->heads * L->head_dim;
  int wide = L->q.n + 2 * L->k.n, wanted = std::max(M, O->wanted_count);
  float* at = main_scratch.need((size_t)M * (2 * A + H + 2 * I + wide) + (size_t)wanted * H + M);
  Work w;
  w.M = M;
  auto take = [&](size_t n) { float* p = at; at += n; return p; };
  w.q = take((size_t)M * A); w.attended = take((size_t)M * A); w.h = take((size_t)M * H); w.hn = take((size_t)wanted * H);
  w.gate = take((size_t)M * I); w.up = take((size_t)M * I); w.proj = take((size_t)M * wide);
  int32_t* request = (int32_t*)take(M);
  for (int r = 0; r < B->count; r++)
    for (int t = 0; t < B->tokens[r]; t++) request[B->first[r] + t] = r;
#pragma omp parallel num_threads(nt)
  {
    int threads = omp_get_num_threads();
    for (int i = 0; i < S->count; i++) {
      copy_boundary(x, H, M, i, O);
      stack_layer<T>(S, i, B, request, w, x, threads);
    }
    copy_boundary(x, H, M, S->count, O);
    if (O->wanted_count || O->last) stack_head<T>(S, w, x, H, O);
  }
}

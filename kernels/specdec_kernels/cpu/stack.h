// One forward of all decoder layers over the tokens of several requests, in one parallel region.
//
// Vectors of 16 floats stay in packed order from norm to norm (see vectors.h), so nothing is shuffled in between. Every
// request reads and writes its own row of the caches; a query sees what stands at or before its position.
#pragma once
#include "rowwise.h"

struct StackLayer {
  const Layer* layer;
  const float *norm1, *norm2, *q_norm, *k_norm;  // scales in packed order
  void *keys, *values;                           // [rows, kv_heads, capacity, head_dim]
  int32_t window, both;                          // positions a query sees, itself included, 0 = all; 1 = later rows of its request too
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
struct Rows { const Requests* requests; const int32_t* request; int count; };  // tokens, and the request of each
struct Outputs {
  const int32_t* wanted;      // [W] tokens whose logits are computed
  void *logits, *last, *aux;  // [W, vocab]; [M, H] after the final norm, or null; [M, A * H] by boundaries
  const int32_t* boundaries;  // [A]: i = what enters layer i
  int32_t wanted_count, boundary_count;
};

struct Work { float *q, *attended, *h, *hn, *gate, *up, *proj, *kept; };

// One head of a row, projected to p: queries to w.q, keys and values to the request's cache row.
template <class T>
static void rotate_and_cache(const Stack* S, const StackLayer& SL, const Work& w, const Rows& rows, int m, int wide, int h) {
  const Layer* L = SL.layer;
  const Requests* B = rows.requests;
  int D = L->head_dim, r = rows.request[m], position = B->start[r] + m - B->first[r];
  const float *p = w.proj + (size_t)m * wide + h * D, *cos = S->cos + (size_t)position * D, *sin = S->sin + (size_t)position * D;
  auto cached = [&](void* to, int head) { return (T*)to + B->row[r] * S->row + head * S->kv_head + (int64_t)position * D; };
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

// Positions that row t of a request's tokens sees.
static inline Span visible(const StackLayer& SL, const Requests* B, int r, int t) {
  int at = B->start[r] + t, from = SL.window ? std::max(0, at + 1 - SL.window) : 0;
  if (!SL.both) return {from, at + 1};
  int end = B->start[r] + B->tokens[r];
  return {from, SL.window ? std::min(end, at + SL.window) : end};
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
          spans[i] = visible(SL, B, r, t);
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

// One layer. input(m, out) gives row m of `all` as its q, k and v read it; x: residual stream of the rows in `kept`, which
// are the last ones of their requests (`which` of all rows; null = every row). Other rows leave keys and values only.
template <class T, class F>
static void stack_layer(const Stack* S, int index, const Rows& all, const Rows& kept, const int32_t* which, const Work& w, T* x,
                        int nt, F input) {
  const StackLayer& SL = S->layers[index];
  const Layer* L = SL.layer;
  int M = kept.count, H = L->o.n, I = L->gate.n, wide = L->q.n + 2 * L->k.n, at = L->q.n, heads = L->heads;
  float *xn = normed(all.count, L->q.k, w.hn, norm_scratch, input), *xq = xn;
  if (which) xq = normed(M, L->q.k, w.kept, kept_scratch, [&](int i, float* out) { input(which[i], out); });
  blocks<T>(L->q, xq, M, [&](int m, int n, const vf b[VECS]) { save_block(w.proj + (size_t)m * wide + n, b); });
  for (const Linear* l : {&L->k, &L->v}) {
    blocks<T>(*l, xn, all.count, [&](int m, int n, const vf b[VECS]) { save_block(w.proj + (size_t)m * wide + at + n, b); });
    at += l->n;
  }
#pragma omp barrier
  int others = 2 * L->kv_heads;
  for (int task = omp_get_thread_num(); task < M * heads; task += nt)
    rotate_and_cache<T>(S, SL, w, kept, task / heads, wide, task % heads);
  for (int task = omp_get_thread_num(); task < all.count * others; task += nt)
    rotate_and_cache<T>(S, SL, w, all, task / others, wide, heads + task % others);
#pragma omp barrier
  if (M == 0) return;
  attend<T>(S, SL, kept.requests, w, nt);
#pragma omp barrier
  blocks<T>(L->o, w.attended, M, [&](int m, int n, const vf b[VECS]) {
    vf v[VECS];
    read_block(x + (size_t)m * H + n, v);
    for (int i = 0; i < VECS; i++) v[i] += b[i];
    save_block(w.h + (size_t)m * H + n, v);
  });
#pragma omp barrier
  float* hn = normed(M, H, w.hn, norm_scratch, [&](int m, float* out) { packed_norm(w.h + (size_t)m * H, SL.norm2, L->eps2, H, out); });
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

// A layer whose input is its own norm of the residual stream.
template <class T> static void plain_layer(const Stack* S, int index, const Rows& rows, const Work& w, T* x, int nt) {
  const Layer* L = S->layers[index].layer;
  int H = L->q.k;
  stack_layer<T>(S, index, rows, rows, nullptr, w, x, nt,
                 [&](int m, float* out) { packed_input(x + (size_t)m * H, S->layers[index].norm1, L->eps1, H, out); });
}

// Logits [M, vocab] of packed rows.
template <class T> static void head_logits(const Linear& l, const float* rows, int M, T* logits) {
  blocks<T>(l, rows, M, [&](int m, int n, const vf b[VECS]) {
    T* out = logits + (size_t)m * l.n + n;
    if (n + BLOCK <= l.n) return store_block(out, b);
    T part[BLOCK];
    store_block(part, b);
    memcpy(out, part, (l.n - n) * sizeof(T));
  });
}

// Final norm of the wanted tokens (all of them into O->last, when asked for), then their logits.
template <class T> static void stack_head(const Stack* S, const Work& w, const T* x, int M, int H, const Outputs* O) {
  auto norm = [&](int m, float* out) {
    packed_norm(x + (size_t)m * H, S->norm, S->eps, H, out);
    for (int i = 0; i < H; i += LANES) save(out + i, rounded<T>(load(out + i)));
  };
  if (O->last) {
    float* own = norm_scratch.need(H);
    for (int m = omp_get_thread_num(); m < M; m += omp_get_num_threads()) {
      norm(m, own);
      store_head(own, H, (T*)O->last + (size_t)m * H);
    }
  }
  float* rows = normed(O->wanted_count, H, w.hn, norm_scratch, [&](int i, float* out) { norm(O->wanted[i], out); });
  head_logits<T>(*S->head, rows, O->wanted_count, (T*)O->logits);
}

// Room for M rows through any of the layers; `wide`: inputs of the first one.
static Work make_work(const Stack* S, int M, int kept, int wide, float* at) {
  const Layer* L = S->layers[0].layer;
  size_t H = L->o.n, I = L->gate.n, A = L->heads * L->head_dim, rows = M;
  auto take = [&](size_t n) { float* p = at; at += n; return p; };
  Work w;
  w.q = take(rows * A); w.attended = take(rows * A); w.h = take(rows * H); w.gate = take(rows * I); w.up = take(rows * I);
  w.proj = take(rows * (L->q.n + 2 * L->k.n)); w.hn = take(rows * wide); w.kept = take((size_t)kept * wide);
  return w;
}
static size_t work_size(const Stack* S, int M, int kept, int wide) {
  const Layer* L = S->layers[0].layer;
  return (size_t)M * (2 * L->heads * L->head_dim + L->o.n + 2 * L->gate.n + L->q.n + 2 * L->k.n) + (size_t)(M + kept) * wide;
}

// x [M, H]: embedded tokens, overwritten by what leaves the last layer.
template <class T> static void stack(const Stack* S, const Requests* B, T* x, const Outputs* O, int nt) {
  int last = B->count - 1, M = B->first[last] + B->tokens[last], H = S->layers[0].layer->o.n, room = std::max(M, O->wanted_count);
  size_t size = work_size(S, room, 0, H);
  float* memory = main_scratch.need(size + M);
  Work w = make_work(S, room, 0, H, memory);
  int32_t* request = (int32_t*)(memory + size);
  for (int r = 0; r < B->count; r++)
    for (int t = 0; t < B->tokens[r]; t++) request[B->first[r] + t] = r;
  Rows rows = {B, request, M};
#pragma omp parallel num_threads(nt)
  {
    int threads = omp_get_num_threads();
    for (int i = 0; i < S->count; i++) {
      copy_boundary(x, H, M, i, O);
      plain_layer<T>(S, i, rows, w, x, threads);
    }
    copy_boundary(x, H, M, S->count, O);
    if (O->wanted_count || O->last) stack_head<T>(S, w, x, M, H, O);
  }
}

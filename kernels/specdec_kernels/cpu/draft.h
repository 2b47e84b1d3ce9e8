// A round of drafting in one call: target states become features, pairs of token and feature run through the draft's
// layers, and each draft's token and feature go into the next one.
#pragma once
#include <vector>

#include "draft_head.h"
#include "draft_lists.h"

enum { EMBEDDED, JOINED, BESIDE };  // x = e; x = join [e, g]; the first layer attends with [e, g] while its residual is g

struct Draft {
  const Stack* stack;       // its final norm may be null
  const Linear *fc, *join;  // [H, S] of target states; [H, 2 H]; either may be null
  const float *state_norm, *feature_norm, *embed_norm;  // scales in packed order, null = none
  const void *embed, *mask;  // [ids, H]; [H] the feature of rows without a state
  const void *blank, *markov_embed;  // [H] replaces the embedding of token `blank_token`, or null; [ids, rank]
  const Linear* markov;              // [vocab, rank]: what the draft before adds to the logits of a row, or null
  const float *confidence, *warmth;  // [H + rank] packed: score that a row's draft is accepted; [K] 1 / temperature; null = none
  const int32_t* to_target;  // [vocab], null = the same ids
  int32_t entry, states, state_chunks, feature_first, normed_residual, normed_feedback, first_empty, blank_token, reads_token, pad;
  float eps_state, eps_feature, eps_embed, confidence_bias;  // first_empty: the embedding of the pair at position 0 is zero
};

template <class T> struct Drafting {
  const Draft* D;
  const Round* R;
  int H, nt, given;
  Work w;
  Lists all, kept;
  T *features, *x, *residual, *fed;  // [given, H], [M, H], [W, H], [W, H]
  float *states, *base;  // [given, S]; [W, vocab] where drafts are chosen one after the other
  Best* parts;           // [2, threads, W]
  const int32_t* given_before;  // [R] rows with states of the requests before

  // Features of the rows that have states: norms of equal chunks, then fc.
  void project() {
    const Draft* d = D;
    int S = d->states, part = S / d->state_chunks;
    float* in = normed(given, S, states, norm_scratch, [&](int m, float* out) {
      int r = 0;
      while (m >= given_before[r] + R->given[r]) r++;
      const T* state = (const T*)R->states[r] + (m - given_before[r]) * R->stride;
      for (int c = 0; c < S; c += part) packed_input(state + c, d->state_norm ? d->state_norm + c : nullptr, d->eps_state, part, out + c);
    });
    blocks<T>(*d->fc, in, given, [&](int m, int n, const vf b[VECS]) { store_block(features + (size_t)m * H + n, b); });
#pragma omp barrier
  }

  // The feature of row m of all rows.
  const T* feature(int m) const {
    int r = all.request[m], i = m - all.first[r];
    if (i >= R->given[r]) return (const T*)D->mask;
    if (D->fc && !R->projected) return features + (size_t)(given_before[r] + i) * H;
    return (const T*)R->states[r] + i * R->stride;
  }

  const T* embedded(int token) const {
    if (D->blank && token == D->blank_token) return (const T*)D->blank;
    return (const T*)D->embed + (int64_t)token * H;
  }

  // Draft i of the pass before, as a target id.
  int drafted(int i, int rows, float* prob = nullptr, int side = 0) const {
    Best best = best_of(parts + (size_t)side * nt * kept.count, nt, rows, i);
    if (prob) *prob = best.mass > 0 ? 1.0f / best.mass : 0.0f;
    return D->to_target ? D->to_target[best.index] : best.index;
  }

  // Row m of `from` through all layers: what leaves the last one for the rows in `to` is in `residual`.
  template <class Token, class Feature> void pass(const Lists& from, const Lists& to, Token token, Feature feature_of) {
    const Stack* S = D->stack;
    int me = omp_get_thread_num(), behind = D->feature_first ? H : 0;
    auto pair = [&](int m, float* out) {
      bool empty = D->first_empty && from.start[from.request[m]] + m - from.first[from.request[m]] == 0;
      if (empty) memset(out + behind, 0, H * sizeof(float));
      else packed_input(embedded(token(m)), D->embed_norm, D->eps_embed, H, out + behind);
      packed_input(feature_of(m), D->feature_norm, D->eps_feature, H, out + H - behind);
    };
    auto enter = [&](int m, T* out) {
      if (!D->normed_residual) { memcpy(out, feature_of(m), H * sizeof(T)); return; }
      float* y = kept_scratch.need(H);
      packed_norm(feature_of(m), D->feature_norm, D->eps_feature, H, y);
      store_head(y, H, out);
    };
    bool only = S->count == 1 && D->entry == BESIDE;
    if (only) {
      for (int i = me; i < to.count; i += nt) enter(from.count == to.count ? i : to.which[i], residual + (size_t)i * H);
    } else if (D->entry == BESIDE) {
      for (int m = me; m < from.count; m += nt) enter(m, x + (size_t)m * H);
    } else if (D->entry == JOINED) {
      float* both = normed(from.count, 2 * H, w.hn, norm_scratch, pair);
      blocks<T>(*D->join, both, from.count, [&](int m, int n, const vf b[VECS]) { store_block(x + (size_t)m * H + n, b); });
#pragma omp barrier
    } else {
      for (int m = me; m < from.count; m += nt) memcpy(x + (size_t)m * H, embedded(token(m)), H * sizeof(T));
#pragma omp barrier
    }
    bool same = from.count == to.count;
    for (int l = 0; l < S->count; l++) {
      const StackLayer& SL = S->layers[l];
      bool last = l == S->count - 1;
      if (last && !only)
        for (int i = me; i < to.count; i += nt)
          memcpy(residual + (size_t)i * H, x + (size_t)(same ? i : to.which[i]) * H, H * sizeof(T));
      const Lists& out = last ? to : from;
      const int32_t* which = same || !last ? nullptr : to.which;
      T* stream = last ? residual : x;
      if (l == 0 && D->entry == BESIDE) stack_layer<T>(S, l, from.rows(), out.rows(), which, w, stream, nt, pair);
      else
        stack_layer<T>(S, l, from.rows(), out.rows(), which, w, stream, nt, [&](int m, float* row) {
          packed_input(x + (size_t)m * H, SL.norm1, SL.layer->eps1, H, row);
        });
    }
  }

  // Drafts one after the other, where each shifts the logits of the row behind it; `in`: normed rows.
  void walk(const Lists& rows, const float* in) {
    const Linear& l = *D->stack->head;
    int rank = D->markov->k, W = rows.count, n = R->requests, wide = (l.n + BLOCK - 1) / BLOCK * BLOCK, most = 0;
    for (int r = 0; r < n; r++) most = std::max(most, R->kept[r]);
    blocks<T>(l, in, W, [&](int m, int at, const vf b[VECS]) {
      vf v[VECS];
      for (int i = 0; i < VECS; i++) v[i] = rounded<T>(b[i]);
      save_block(base + (size_t)m * wide + at, v);
    });
    float* e = kept_scratch.need((size_t)n * (rank + 1));  // of requests that have a row in this column
    int32_t* row = (int32_t*)(e + (size_t)n * rank);
    for (int c = 0; c < most; c++) {
      int count = 0;
      for (int r = 0; r < n; r++) {
        if (R->kept[r] <= c) continue;
        int before = c ? drafted(previous(c - 1, r), width(c - 1), nullptr, (c - 1) % 2) : R->tokens[all.first[r]];
        packed_input((const T*)D->markov_embed + (int64_t)before * rank, nullptr, 0.0f, rank, e + (size_t)count * rank);
        row[count++] = rows.first[r] + c;
      }
      Best* found = parts + (size_t)(c % 2) * nt * kept.count;
      Tops<T> tops(count, l.n, R->probs && !D->confidence);
      blocks<T>(*D->markov, e, count, [&](int m, int at, const vf b[VECS]) {
        vf v[VECS];
        read_block(base + (size_t)row[m] * wide + at, v);
        for (int i = 0; i < VECS; i++) v[i] += rounded<T>(b[i]);
        tops.add(m, at, v);
      });
      for (int m = 0; m < count; m++) found[(size_t)omp_get_thread_num() * count + m] = tops.best(m);
#pragma omp barrier
      for (int m = omp_get_thread_num(); m < count; m += nt) {
        int64_t at = (int64_t)rows.owner[row[m]] * R->width + c;
        R->ids[at] = drafted(m, count, R->probs ? R->probs + at : nullptr, c % 2);
        if (R->probs && D->confidence) R->probs[at] = confident(row[m], c, e + (size_t)m * rank);
      }
    }
#pragma omp barrier
  }
  int width(int c) const {
    int count = 0;
    for (int r = 0; r < R->requests; r++) count += R->kept[r] > c;
    return count;
  }
  int previous(int c, int request) const {
    int count = 0;
    for (int r = 0; r < request; r++) count += R->kept[r] > c;
    return count;
  }

  // What the confidence head says of a row, given the embedding of the draft before it.
  float confident(int i, int step, const float* e) const {
    const Stack* S = D->stack;
    float* y = lane_scratch.need(H);
    packed_input(residual + (size_t)i * H, S->norm, S->eps, H, y);
    float score = D->confidence_bias;
    for (int j = 0; j < H; j++) score += rounded_one(y[j]) * D->confidence[j];
    for (int j = 0; D->reads_token && j < D->markov->k; j++) score += e[j] * D->confidence[H + j];
    if (D->warmth) score *= D->warmth[step];
    return 1.0f / (1.0f + std::exp(-score));
  }
  static float rounded_one(float x) { T t; store(&t, x); return to_float(t); }

  // Tops or logits of the rows that left the last layer, and what feeds the next draft.
  void head(const Lists& rows) {
    const Stack* S = D->stack;
    int W = rows.count;
    auto norm = [&](int i, float* out) {
      packed_input(residual + (size_t)i * H, S->norm, S->eps, H, out);
      for (int j = 0; j < H; j += LANES) save(out + j, rounded<T>(load(out + j)));
    };
    for (int i = omp_get_thread_num(); i < W; i += nt) {
      T* hidden = R->hidden ? (T*)R->hidden + (size_t)i * H : nullptr;
      if (hidden || D->normed_feedback) {
        float* y = kept_scratch.need(H);
        norm(i, y);
        if (hidden) store_head(y, H, hidden);
        if (D->normed_feedback) store_head(y, H, fed + (size_t)i * H);
      }
      if (!D->normed_feedback) memcpy(fed + (size_t)i * H, residual + (size_t)i * H, H * sizeof(T));
    }
    float* in = normed(W, H, w.hn, norm_scratch, norm);
    if (R->ids && D->markov) return walk(rows, in);
    if (R->ids) head_tops<T>(*S->head, in, W, R->probs && !D->confidence, parts);
    else if (R->logits) head_logits<T>(*S->head, in, W, (T*)R->logits);
#pragma omp barrier
    if (R->ids)
      for (int i = omp_get_thread_num(); i < W; i += nt) {
        int64_t at = (int64_t)rows.owner[i] * R->width + rows.column[i];
        R->ids[at] = drafted(i, W, R->probs ? R->probs + at : nullptr);
        if (R->probs && D->confidence) R->probs[at] = confident(i, rows.column[i], nullptr);
      }
  }
};

template <class T> static void draft(const Draft* D, const Round* R, int nt) {
  const Stack* S = D->stack;
  int n = R->requests, M = 0, W = 0, given = 0, most = 0, H = S->layers[0].layer->o.n;
  for (int r = 0; r < n; r++) {
    M += R->count[r]; W += R->kept[r]; given += R->given[r];
    most = std::max(most, R->kept[r] ? R->steps[r] : 0);
  }
  bool projects = D->fc && !R->projected && given;
  int wide = std::max(2 * H, S->layers[0].layer->q.k), later = std::max(0, most - 1);
  size_t room = std::max(M, W), work = work_size(S, room, W, wide), rows = (size_t)(given + M + 2 * W) * H;
  size_t ints = (size_t)n * (4 * (later + 2) + 1) + 4 * ((size_t)M + W + (size_t)later * W);
  size_t bests = 2 * (size_t)nt * W * sizeof(Best) / sizeof(float);
  size_t base = D->markov && R->ids ? (size_t)W * ((S->head->n + BLOCK - 1) / BLOCK * BLOCK) : 0;
  float* at = main_scratch.need(work + rows + (projects ? (size_t)given * D->states : 0) + bests + base + ints);
  Drafting<T> d;
  d.D = D; d.R = R; d.H = H; d.given = given;
  d.w = make_work(S, room, W, wide, at); at += work;
  d.features = (T*)at; d.x = (T*)(at + (size_t)given * H); d.residual = (T*)(at + (size_t)(given + M) * H);
  d.fed = (T*)(at + (size_t)(given + M + W) * H); at += rows;
  d.states = at; if (projects) at += (size_t)given * D->states;
  d.base = at; at += base;
  d.parts = (Best*)at; at += bests;
  int32_t* numbers = (int32_t*)at;
  int32_t* before = numbers; numbers += n;
  for (int r = 0, sum = 0; r < n; sum += R->given[r++]) before[r] = sum;
  d.given_before = before;
  d.all = make_lists(numbers, n, M); d.kept = make_lists(numbers, n, W);
  last_rows(d.all, R, R->count); last_rows(d.kept, R, R->kept);
  std::vector<Lists> chain;
  for (int step = 1; step < most; step++) {
    chain.push_back(make_lists(numbers, n, W));
    next_rows(chain.back(), R, step == 1 ? d.kept : chain[step - 2], step);
  }
#pragma omp parallel num_threads(nt)
  {
#pragma omp single
    d.nt = omp_get_num_threads();
    if (projects) d.project();
    d.pass(d.all, d.kept, [&](int m) { return R->tokens[m]; }, [&](int m) { return d.feature(m); });
    if (W) d.head(d.kept);
    for (int step = 1; step < most; step++) {
      const Lists &now = chain[step - 1], &last = step == 1 ? d.kept : chain[step - 2];
      d.pass(now, now, [&](int m) { return d.drafted(now.which[m], last.count); }, [&](int m) { return d.fed + (size_t)now.which[m] * H; });
      d.head(now);
    }
  }
  if (R->feedback) memcpy(R->feedback, d.fed, (size_t)W * H * sizeof(T));
}

// Keys and values of context rows at their positions: features, their norm, and nothing else of the layers.
template <class T> static void draft_context(const Draft* D, const Round* R, const float* norm, float eps, int nt) {
  const Stack* S = D->stack;
  int n = R->requests, M = 0, H = S->layers[0].layer->o.n;
  for (int r = 0; r < n; r++) M += R->count[r];
  size_t work = work_size(S, M, 0, H), states = D->fc ? (size_t)M * D->states : 0;
  float* at = main_scratch.need(work + states + (size_t)M * H + 9 * (size_t)n + 4 * (size_t)M);
  Drafting<T> d;
  d.D = D; d.R = R; d.H = H; d.given = M;
  d.w = make_work(S, M, 0, H, at); at += work;
  d.states = at; at += states;
  d.features = (T*)at; at += (size_t)M * H;
  int32_t* numbers = (int32_t*)at;
  int32_t* before = numbers; numbers += n;
  for (int r = 0, sum = 0; r < n; sum += R->given[r++]) before[r] = sum;
  d.given_before = before;
  d.all = make_lists(numbers, n, M); d.kept = make_lists(numbers, n, 0);
  last_rows(d.all, R, R->count);
  d.kept.count = 0;
#pragma omp parallel num_threads(nt)
  {
#pragma omp single
    d.nt = omp_get_num_threads();
    if (D->fc && !R->projected) d.project();
    for (int l = 0; l < S->count; l++)
      stack_layer<T>(S, l, d.all.rows(), d.kept.rows(), d.all.which, d.w, nullptr, d.nt,
                     [&](int m, float* out) { packed_input(d.feature(m), norm, eps, H, out); });
  }
}

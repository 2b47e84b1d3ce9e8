// Which rows a round of drafting computes: all of a request's pairs first, then one row a draft.
#pragma once
#include "stack.h"

struct Round {                          // R requests
  const int32_t *count, *start, *row;   // [R]: rows, position of the first one, cache row
  const int32_t *given, *kept, *steps;  // [R]: first rows that have states; last rows that are sampled; drafts of a chain
  const int32_t* tokens;                // of all rows, request after request
  const void* const* states;            // [R]: the first state of each request, rows `stride` elements apart
  int64_t stride;
  int32_t requests, projected;          // projected: states are features already
  int32_t width, pad;                   // of ids and probs
  int32_t* ids;                         // [R, width] target ids of the drafts; null = none are drawn
  float* probs;                         // [R, width] the draft's own probability of each, or null
  void *logits, *hidden, *feedback;     // of the kept rows, may be null: [W, vocab]; [W, H] after the final norm; [W, H]
};

// Rows grouped by request. `which`: their rows among all of this pass, or among the kept ones of the pass before.
struct Lists {
  int32_t *first, *tokens, *start, *row, *request, *which, *owner, *column;
  Requests requests;
  int count;
  Rows rows() const { return {&requests, request, count}; }
};

static Lists make_lists(int32_t*& at, int requests, int rows) {
  auto take = [&](int n) { int32_t* p = at; at += n; return p; };
  Lists s = {take(requests), take(requests), take(requests), take(requests), take(rows), take(rows), take(rows), take(rows), {}, 0};
  s.requests = {s.first, s.tokens, s.start, s.row, requests, 0};
  return s;
}

// The last kept[r] rows of each request; kept = count gives all.
static void last_rows(Lists& s, const Round* R, const int32_t* kept) {
  s.count = 0;
  for (int r = 0, end = 0; r < R->requests; r++) {
    end += R->count[r];
    s.first[r] = s.count; s.tokens[r] = kept[r]; s.row[r] = R->row[r]; s.start[r] = R->start[r] + R->count[r] - kept[r];
    for (int i = 0; i < kept[r]; i++, s.count++) {
      s.request[s.count] = s.owner[s.count] = r;
      s.column[s.count] = i;
      s.which[s.count] = end - kept[r] + i;
    }
  }
}

// Draft number `step`: one row for each request that still wants one.
static void next_rows(Lists& s, const Round* R, const Lists& before, int step) {
  int n = 0;
  for (int i = 0; i < before.count; i++) {
    int r = before.owner[i];
    if (R->steps[r] <= step) continue;
    s.first[n] = n; s.tokens[n] = 1; s.start[n] = R->start[r] + R->count[r] - 1 + step; s.row[n] = R->row[r];
    s.request[n] = n; s.which[n] = i; s.owner[n] = r; s.column[n] = step;
    n++;
  }
  s.count = s.requests.count = n;
}

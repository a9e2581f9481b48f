// What a search asks of logits: log-probabilities, the best tokens, and the whole bookkeeping of a step of a beam.

#include "check.h"
#include "linear.h"

#include <ATen/ops/empty.h>
#include <cmath>
#include <limits>
#include <torch/library.h>

namespace seqlab {
namespace {

constexpr int64_t BLOCK = 512;  // terms of a sum that are worked on together
constexpr float NEVER = -std::numeric_limits<float>::infinity();

// log Σ e^x.
float log_sum(const float* row, int64_t size) {
  const float largest = largest_of(row, size);
  float sum = std::isinf(largest) ? 1.0f : 0.0f;
  for (int64_t i = 0; i < size && !std::isinf(largest); i += BLOCK) {
    float terms[BLOCK];
    const int64_t count = std::min(BLOCK, size - i), whole = whole_lanes(count);
    std::copy_n(row + i, count, terms);
    std::fill(terms + count, terms + whole, NEVER);
    sum += exponentials(terms, whole, largest);
  }
  return largest + std::log(sum);
}

// The `keep` largest of a row and where they are, largest first, of equals the first; those of `barred` as -inf.
void best_of(const float* row, int64_t size, int64_t keep, at::IntArrayRef barred, float* best, int64_t* where) {
  for (int64_t i = 0, filled = 0; i < size; ++i) {
    while (filled == keep && i + LANES <= size && !any_above(row + i, best[keep - 1])) i += LANES;  // most are small
    if (i == size) break;
    const float value = std::find(barred.begin(), barred.end(), i) != barred.end() ? NEVER : row[i];
    if (filled == keep && !(value > best[keep - 1])) continue;
    int64_t place = filled < keep ? filled++ : keep - 1;
    for (; place > 0 && value > best[place - 1]; --place) best[place] = best[place - 1], where[place] = where[place - 1];
    best[place] = value, where[place] = i;
  }
}

at::Tensor checked(const at::Tensor& logits) {
  const at::Tensor all = logits.contiguous();
  check_tensor("logits", all, at::kFloat, {-1, -1});
  TORCH_CHECK(all.size(1) > 0, "a row must have a logit");
  return all;
}

at::Tensor log_total(const at::Tensor& logits) {
  const at::Tensor all = checked(logits), totals = at::empty({all.size(0)}, all.options());
  for (int64_t r = 0; r < all.size(0); ++r)
    totals.mutable_data_ptr<float>()[r] = log_sum(all.const_data_ptr<float>() + r * all.size(1), all.size(1));
  return totals;
}

std::tuple<at::Tensor, at::Tensor> largest(const at::Tensor& logits, int64_t keep, at::IntArrayRef never) {
  const at::Tensor all = checked(logits);
  const int64_t rows = all.size(0), size = all.size(1);
  TORCH_CHECK(0 < keep && keep <= size, "the largest ", keep, " of ", size);
  const at::Tensor values = at::empty({rows, keep}, all.options()), places = at::empty({rows, keep}, at::kLong);
  for (int64_t r = 0; r < rows; ++r)
    best_of(all.const_data_ptr<float>() + r * size, size, keep, never, values.mutable_data_ptr<float>() + r * keep,
            places.mutable_data_ptr<int64_t>() + r * keep);
  return {values, places};
}

// The likeliest token of each row, and its log-probability.
std::tuple<at::Tensor, at::Tensor> likeliest(const at::Tensor& logits, at::IntArrayRef never) {
  const at::Tensor all = checked(logits);
  const int64_t rows = all.size(0), size = all.size(1);
  const at::Tensor tokens = at::empty({rows}, at::kLong), log_p = at::empty({rows}, all.options());
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = all.const_data_ptr<float>() + r * size;
    float best;
    best_of(row, size, 1, never, &best, tokens.mutable_data_ptr<int64_t>() + r);
    log_p.mutable_data_ptr<float>()[r] = row[tokens.const_data_ptr<int64_t>()[r]] - log_sum(row, size);
  }
  return {tokens, log_p};
}

struct Candidate {
  double score;
  int64_t parent, token;
  float log_p;
};

// E60 and what follows it, for all sources at once. logits: sources times live hypotheses; totals: log Σ e^logit of
// each, if others than those of these logits; scores: of the live hypotheses; history, log_p: their tokens so far.
// First the 2K best extensions of each source: scores, parents, tokens, log-probabilities, and which of them end. Then
// the K that go on, the best that did not end: scores (-inf where ended), tokens, rows of the step before, histories.
std::vector<at::Tensor> beam_step(
    const at::Tensor& logits, const std::optional<at::Tensor>& totals, const at::Tensor& scores,
    const at::Tensor& history, const at::Tensor& log_p, int64_t width, at::IntArrayRef never, int64_t end,
    const at::Tensor& may_end) {
  const at::Tensor all = checked(logits);
  check_tensor("scores", scores, at::kDouble, {-1, -1});
  const int64_t sources = scores.size(0), beams = scores.size(1), size = all.size(1);
  TORCH_CHECK(width > 0 && beams > 0 && all.size(0) == sources * beams, "a hypothesis must have its logits");
  check_tensor("history", history, at::kLong, {sources, beams, -1});
  const int64_t length = history.size(2);
  check_tensor("log_p", log_p, at::kDouble, {sources, beams, length});
  check_tensor("may_end", may_end, at::kBool, {sources});
  if (totals) check_tensor("totals", *totals, at::kFloat, {sources * beams});
  const int64_t each = std::min(2 * width, size), kept = std::min(2 * width, beams * each), live = std::min(width, kept);
  const auto whole = [&](at::IntArrayRef shape) { return at::empty(shape, history.options()); };
  const auto real = [&](at::IntArrayRef shape) { return at::empty(shape, scores.options()); };
  const at::Tensor c_scores = real({sources, kept}), c_parents = whole({sources, kept}), c_tokens = whole({sources, kept});
  const at::Tensor c_log_p = real({sources, kept}), c_ends = at::empty({sources, kept}, may_end.options());
  const at::Tensor l_scores = real({sources, live}), l_tokens = whole({sources, live}), l_rows = whole({sources, live});
  const at::Tensor l_history = whole({sources, live, length + 1}), l_log_p = real({sources, live, length + 1});
  std::vector<float> best(each);
  std::vector<int64_t> where(each);
  std::vector<Candidate> candidates(beams * each);
  for (int64_t b = 0; b < sources; ++b) {
    for (int64_t k = 0; k < beams; ++k) {
      const int64_t row = b * beams + k;
      const float* from = all.const_data_ptr<float>() + row * size;
      const float total = totals ? totals->const_data_ptr<float>()[row] : log_sum(from, size);
      best_of(from, size, each, never, best.data(), where.data());
      for (int64_t i = 0; i < each; ++i) {
        const float chosen = best[i] - total;
        candidates[k * each + i] = {scores.const_data_ptr<double>()[row] + chosen, k, where[i], chosen};
      }
    }
    // of equals the first; a number that is none comes before all, as torch has it
    std::partial_sort(
        candidates.begin(), candidates.begin() + kept, candidates.end(), [](const Candidate& x, const Candidate& y) {
          if (x.score != y.score) return std::isnan(x.score) ? !std::isnan(y.score) : x.score > y.score;
          return x.parent != y.parent ? x.parent < y.parent : x.token < y.token;
        });
    const bool free = may_end.const_data_ptr<bool>()[b];
    for (int64_t i = 0; i < kept; ++i) {
      const Candidate& one = candidates[i];
      const int64_t to = b * kept + i;
      c_scores.mutable_data_ptr<double>()[to] = one.score, c_parents.mutable_data_ptr<int64_t>()[to] = one.parent;
      c_tokens.mutable_data_ptr<int64_t>()[to] = one.token, c_log_p.mutable_data_ptr<double>()[to] = one.log_p;
      c_ends.mutable_data_ptr<bool>()[to] = free && one.token == end;
    }
    int64_t to = b * live;
    for (const bool ended : {false, true})  // who ended goes on only where there are too few others, as a place that is dead
      for (int64_t i = 0; i < kept && to < (b + 1) * live; ++i) {
        const Candidate& one = candidates[i];
        if ((free && one.token == end) != ended) continue;
        const int64_t row = b * beams + one.parent;
        l_scores.mutable_data_ptr<double>()[to] = ended ? NEVER : one.score;
        l_tokens.mutable_data_ptr<int64_t>()[to] = one.token, l_rows.mutable_data_ptr<int64_t>()[to] = row;
        int64_t* tokens = l_history.mutable_data_ptr<int64_t>() + to * (length + 1);
        double* logs = l_log_p.mutable_data_ptr<double>() + to * (length + 1);
        std::copy_n(history.const_data_ptr<int64_t>() + row * length, length, tokens);
        std::copy_n(log_p.const_data_ptr<double>() + row * length, length, logs);
        tokens[length] = one.token, logs[length] = one.log_p;
        ++to;
      }
  }
  return {c_scores, c_parents, c_tokens, c_log_p, c_ends, l_scores, l_tokens, l_rows, l_history, l_log_p};
}

}  // namespace
}  // namespace seqlab

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def("log_total(Tensor logits) -> Tensor", seqlab::log_total);
  m.def("largest(Tensor logits, int keep, int[] never) -> (Tensor, Tensor)", seqlab::largest);
  m.def("likeliest(Tensor logits, int[] never) -> (Tensor, Tensor)", seqlab::likeliest);
  m.def(
      "beam_step(Tensor logits, Tensor? totals, Tensor scores, Tensor history, Tensor log_p, int width, int[] never, "
      "int end, Tensor may_end) -> Tensor[]",
      seqlab::beam_step);
}

// SPDX-License-Identifier: Apache-2.0
// The loops of token generation of com.microsoft: BeamSearch and WhisperBeamSearch, GreedySearch and Sampling. Their
// networks are subgraphs: a decoder that reads its past (GPT-2), or an encoder and a decoder that also reads what the
// encoder left (T5, Whisper). Evaluation calls the network once a step, lets token_search.h choose tokens, and hands
// the network's presents to it as the past of the next step, in the order of the beams that go on.
#include <cstring>

#include "ops/contrib/token_search.h"
#include "ops/control_types.h"

namespace tessera::ops {

namespace {

namespace generation_loops {

using kernel::set_of;
using namespace generation;

enum class Network : uint8_t { kDecoder, kEncoderDecoder, kSpeech };

/// Where an operator has its operands.
struct Form {
  bool beams, samples;
  size_t repetition, vocabulary, prefix, mask;
  Network network;  // by default
};
constexpr Form kBeamForm{true, false, 6, 7, 8, 9, Network::kDecoder};
constexpr Form kSpeechForm{true, false, 6, 7, 8, 9, Network::kSpeech};
constexpr Form kGreedyForm{false, false, 3, 4, 5, 6, Network::kDecoder};
constexpr Form kSamplingForm{false, true, 3, 4, 5, 6, Network::kDecoder};
enum Input : size_t { kIds, kMost, kLeast, kBeams, kReturns, kLengthPenalty };
enum BeamInput : size_t { kBegin = 10, kLogits = 11, kTemperature = 14 };
enum SamplingInput : size_t { kPresence = 7, kSeed = 8 };

Network network_of(const Node& node, const Form& form) {
  const int64_t type = node.get_int("model_type", static_cast<int64_t>(form.network));
  if (type < 0 || type > (form.beams ? 2 : 0))
    node.fail(ErrorCode::kUnsupported, "attribute 'model_type' = " + std::to_string(type) + " is not served; 0 is" +
                                           (form.beams ? ", and 1 and 2 are" : ""));
  if (type != 0) node.get_subgraph("encoder");
  return static_cast<Network>(type);
}

// ---------------------------------------------------------------------------------------------------------- networks

/// What the operands and results of the networks are. `rows` = batch * beams; unknown extents are -1.
struct Extents {
  int64_t batch = -1, length = -1, beams = -1, rows = -1;
};

int64_t known_scalar(const InferContext& c, size_t i, int64_t fallback) {
  if (!c.has(i)) return fallback;
  const auto known = kernel::known_ints(c, i);
  return known && known->size() == 1 ? known->front() : -1;
}

TypeInfo ids(int64_t rows, int64_t length) { return TypeInfo::tensor(DType::kInt32, {rows, length}); }

/// A past as its network declares it, with another number of rows and positions, whose axes these are.
TypeInfo past_type(TypeInfo declared, int64_t rank, size_t rows_axis, int64_t rows, size_t length_axis,
                   int64_t length) {
  if (!declared.ranked || static_cast<int64_t>(declared.shape.size()) != rank)
    declared.shape.assign(static_cast<size_t>(rank), -1);
  declared.ranked = true;
  declared.constant.reset();
  declared.shape[rows_axis] = rows;
  declared.shape[length_axis] = length;
  return declared;
}

/// Layers of a decoder that takes `places` operands before the past and `per_layer` of the past for each layer.
int64_t layers_of(const Node& node, const Subgraph& body, const char* name, size_t least, size_t most,
                  int64_t per_layer, int64_t results_per_layer) {
  const auto inputs = static_cast<int64_t>(body.input_count()), outputs = static_cast<int64_t>(body.output_count());
  const int64_t layers = (outputs - 1) / results_per_layer, before = inputs - per_layer * layers;
  if (layers < 1 || (outputs - 1) % results_per_layer != 0 || before < static_cast<int64_t>(least) ||
      before > static_cast<int64_t>(most))
    node.fail(ErrorCode::kUnsupported, std::string("the subgraph '") + name + "' has " + std::to_string(inputs) +
                                           " inputs and " + std::to_string(outputs) + " outputs; " +
                                           std::to_string(least) + " to " + std::to_string(most) + " inputs, then " +
                                           std::to_string(per_layer) + " pasts a layer are served, and " +
                                           std::to_string(results_per_layer) + " presents a layer behind the logits");
  return layers;
}

/// A decoder alone: ids, positions, mask, then a past [2, rows, heads, length, size] for each layer.
constexpr size_t kPast = 3;

void infer_decoder(const InferContext& c, const char* name, const Extents& e, int64_t length, int64_t past) {
  const auto body = c.node.get_subgraph(name);
  const int64_t layers = layers_of(c.node, *body, name, kPast, kPast, 1, 1);
  const std::vector<TypeInfo> declared = body->input_types();
  std::vector<TypeInfo> types = {ids(e.rows, length), ids(e.rows, length), ids(e.rows, past == 0 ? length : -1)};
  for (int64_t i = 0; i < layers; ++i) {
    types.push_back(past_type(declared[kPast + static_cast<size_t>(i)], 5, 1, e.rows, 3, past));
    types.back().shape[0] = 2;
  }
  body->infer(types);
}

/// An encoder, and a decoder with a past [rows, heads, length, size]: keys and values of each layer for the decoder's
/// own tokens, then those for the encoder's.
struct EncoderDecoder {
  std::shared_ptr<const Subgraph> encoder, decoder;
  size_t layers = 0, before = 0;  // operands of the decoder before the past
  bool begins = false;            // the encoder leaves the first logits
  bool masked = false, hidden = false;

  EncoderDecoder(const Node& node, Network network)
      : encoder(node.get_subgraph("encoder")), decoder(node.get_subgraph("decoder")) {
    masked = network == Network::kEncoderDecoder;
    const size_t least = masked ? 2 : 1;
    layers = static_cast<size_t>(layers_of(node, *decoder, "decoder", least, least + 1, 4, 2));
    before = decoder->input_count() - 4 * layers;
    hidden = before > least;
    begins = encoder->output_count() != 2 * layers;
    if (begins && encoder->output_count() != 2 + 4 * layers)
      node.fail(ErrorCode::kUnsupported, "the subgraph 'encoder' has " + std::to_string(encoder->output_count()) +
                                             " outputs; " + std::to_string(2 + 4 * layers) +
                                             " (logits, hidden states, presents) or " + std::to_string(2 * layers) +
                                             " (presents of the encoder's tokens) are served");
    if (encoder->input_count() != (masked && begins ? 3U : 2U))
      node.fail(ErrorCode::kUnsupported, "the subgraph 'encoder' has " + std::to_string(encoder->input_count()) +
                                             " inputs where " + (masked && begins ? "3" : "2") + " are needed");
    if (hidden && !begins)
      node.fail(ErrorCode::kUnsupported, "the decoder reads hidden states that the encoder does not leave");
  }

  /// Whether the decoder reads all tokens in each step, as it does unless it declares one.
  bool reads_all() const {
    const TypeInfo first = decoder->input_types().front();
    return !(first.ranked && first.shape.size() == 2 && first.shape[1] == 1);
  }
};

void infer_encoder_decoder(const InferContext& c, Network network, const Extents& e, int64_t begin) {
  const EncoderDecoder nets(c.node, network);
  const bool all = nets.reads_all();
  std::vector<TypeInfo> types = {kernel::without_constant(c.input(kIds))};
  if (nets.masked) types.push_back(ids(e.batch, e.length));
  if (nets.begins) types.push_back(ids(e.batch, begin));
  const std::vector<TypeInfo> left = nets.encoder->infer(types);
  const std::vector<TypeInfo> declared = nets.decoder->input_types();
  std::vector<TypeInfo> operands = {ids(e.rows, all ? -1 : 1)};
  if (nets.masked) operands.push_back(ids(e.rows, e.length));
  const auto expanded = [&](TypeInfo type) {
    if (type.ranked && !type.shape.empty()) type.shape[0] = e.rows;
    return kernel::without_constant(type);
  };
  if (nets.hidden) operands.push_back(expanded(left[1]));
  for (size_t i = 0; i < 4 * nets.layers; ++i) {
    const bool own = i < 2 * nets.layers;
    const TypeInfo& type = declared[nets.before + i];
    operands.push_back(own ? past_type(type, 4, 0, e.rows, 2, -1)
                           : expanded(left[nets.begins ? 2 + i : i - 2 * nets.layers]));
  }
  nets.decoder->infer(operands);
}

InferFunction infer_search(const Form& form) {
  return [form](InferContext& c) {
    const Network network = network_of(c.node, form);
    const TypeInfo& x = c.input(kIds);
    const bool speech = network == Network::kSpeech;
    kernel::require_type(c.node, x.dtype, speech ? kernel::kFloats : set_of({DType::kInt32}), "input_ids");
    kernel::require_rank(c.node, x, speech ? 3 : 2, "input_ids");
    Extents e;
    if (x.ranked) e.batch = x.shape[0];
    if (x.ranked) e.length = x.shape[1];
    e.beams = form.beams ? known_scalar(c, kBeams, 1) : 1;
    e.rows = e.batch >= 0 && e.beams >= 0 ? e.batch * e.beams : -1;
    int64_t begin = 1;
    if (speech && form.beams && c.has(kBegin)) {
      kernel::require_rank(c.node, c.input(kBegin), 2, "decoder_input_ids");
      begin = c.input(kBegin).ranked ? c.input(kBegin).shape[1] : -1;
    }
    if (network != Network::kDecoder) {
      infer_encoder_decoder(c, network, e, begin);
    } else if (c.node.has("init_decoder")) {
      infer_decoder(c, "init_decoder", e, e.length, 0);
      infer_decoder(c, "decoder", e, 1, -1);
    } else {
      infer_decoder(c, "decoder", e, e.length == 1 ? 1 : -1, -1);
    }
    const int64_t most = known_scalar(c, kMost, -1), returns = form.beams ? known_scalar(c, kReturns, 1) : 1;
    c.outputs[0] = TypeInfo::tensor(DType::kInt32, form.beams ? Shape{e.batch, returns, most} : Shape{e.batch, most});
    if (c.outputs.size() > 1) c.outputs[1] = TypeInfo::tensor(DType::kFloat, {e.batch, returns});
    if (c.outputs.size() > 2) c.outputs[2] = TypeInfo::tensor(DType::kFloat, {-1, e.batch, e.beams, -1});
  };
}

// --------------------------------------------------------------------------------------------------------- evaluation

Tensor token_tensor(const Tokens& tokens, Shape shape) {
  return Tensor::of<int32_t>(DType::kInt32, std::move(shape), tokens);
}

/// The places `rows` of an axis, in that order.
Tensor picked(const Tensor& from, size_t axis, const Tokens& rows) {
  Shape shape = from.shape();
  const int64_t outer = kernel::product(shape, 0, axis), extent = shape[axis];
  const int64_t inner = kernel::product(shape, axis + 1, shape.size()) * element_bytes(from.dtype());
  shape[axis] = static_cast<int64_t>(rows.size());
  Tensor to(from.dtype(), shape);
  std::byte* out = to.mutable_data();
  for (int64_t o = 0; o < outer; ++o)
    for (int32_t row : rows) {
      if (inner > 0) std::memcpy(out, from.data() + (o * extent + row) * inner, static_cast<size_t>(inner));
      out += inner;
    }
  return to;
}

/// What an operator was asked to do, checked.
class Search {
 public:
  Search(EvalContext& c, const Form& form) : c_(c), form_(form), network_(network_of(c.node, form)) {
    const Shape& shape = c.input(kIds).shape();
    batch_ = shape[0];
    beams_ = form.beams ? scalar(kBeams, 1) : 1;
    returns_ = form.beams ? scalar(kReturns, 1) : 1;
    most_ = scalar(kMost, 0);
    pad_ = token("pad_token_id");
    require(batch_ > 0, "the batch has no items");
    require(beams_ >= 1 && beams_ <= kMostBeams, "num_beams must lie between 1 and " + std::to_string(kMostBeams));
    require(returns_ >= 1 && returns_ <= beams_, "num_return_sequences must lie between 1 and num_beams");
    for (int64_t r = 0; r < batch_ * beams_; ++r) items_.push_back(static_cast<int32_t>(r / beams_));
    begin_rows();
    const auto length = static_cast<int64_t>(rows_[0].size());
    require(most_ > length && most_ <= kMostTokens, "max_length " + std::to_string(most_) + " must exceed the " +
                                                        std::to_string(length) + " tokens of the beginning, up to " +
                                                        std::to_string(kMostTokens));
    read_rules();
  }

  void run() {
    if (form_.beams)
      run_beams();
    else
      run_greedy();
  }

 private:
  static constexpr int64_t kMostTokens = 4096, kMostBeams = 128;  // of ONNX Runtime

  void require(bool holds, const std::string& message) const {
    if (!holds) c_.node.fail(ErrorCode::kInvalidArgument, message);
  }
  int64_t scalar(size_t i, int64_t fallback) const {
    if (!c_.has(i)) return fallback;
    require(c_.input(i).size() == 1, "operand " + std::to_string(i) + " must be one number");
    return c_.input(i).at_int64(0);
  }
  float number(size_t i, float fallback) const {
    if (!c_.has(i)) return fallback;
    require(c_.input(i).size() == 1, "operand " + std::to_string(i) + " must be one number");
    return c_.input(i).to_floats()[0];
  }
  int32_t token(const char* name) const { return static_cast<int32_t>(c_.node.get_int(name, -1)); }
  Tokens tokens(size_t i) const {
    if (!c_.has(i)) return {};
    const std::vector<int64_t> all = c_.input(i).to_int64s();
    return {all.begin(), all.end()};
  }

  /// The tokens that each row begins with.
  void begin_rows() {
    Tokens given = network_ == Network::kDecoder ? tokens(kIds) : Tokens{};
    if (network_ == Network::kSpeech && form_.beams) given = tokens(kBegin);
    if (given.empty()) given.assign(static_cast<size_t>(batch_), token("decoder_start_token_id"));
    const auto length = static_cast<int64_t>(given.size()) / batch_;
    require(length > 0 && length * batch_ == static_cast<int64_t>(given.size()),
            "the rows have no tokens to begin with");
    for (int32_t item : items_) rows_.emplace_back(given.begin() + item * length, given.begin() + (item + 1) * length);
  }

  void read_rules() {
    const Node& node = c_.node;
    rules_.repetition = number(form_.repetition, 1.0f);
    require(rules_.repetition > 0, "repetition_penalty must be positive");
    rules_.ngram = node.get_int("no_repeat_ngram_size", 0);
    rules_.vocabulary = tokens(form_.vocabulary);
    rules_.prefix = tokens(form_.prefix);
    rules_.least = scalar(kLeast, 0);
    rules_.end = token("eos_token_id");
    if (form_.samples) {
      rules_.temperature = node.get_float("temperature", 1.0f);
      rules_.presence = tokens(kPresence);
      rules_.presence_penalty = node.get_float("presence_penalty", 0.0f);
    } else if (form_.beams) {
      rules_.temperature = number(kTemperature, 1.0f);
      rules_.times = scalar(kLogits, 0) == 1 && network_ == Network::kSpeech;
      const auto named = [&](const char* name) { return node.get_int(name, -1); };
      rules_.time_tokens = {rules_.end,
                            named("decoder_start_token_id"),
                            named("translate_token_id"),
                            named("transcribe_token_id"),
                            named("start_of_lm_token_id"),
                            named("no_timestamps_token_id"),
                            named("beginning_timestamp_token_id")};
      if (rules_.times && rules_.time_tokens.first_time < 0)
        node.fail(ErrorCode::kInvalidModel,
                  "logits_processor 1 needs the attribute 'beginning_timestamp_token_id', which WhisperBeamSearch has");
    }
  }

  /// Scores of the last token of each row; the logits may hold more words than the vocabulary has.
  std::vector<float> last_scores(const Value& value) {
    const Tensor& logits = value.tensor;
    const Shape& shape = logits.shape();
    require(value.kind == Value::Kind::kTensor && shape.size() == 3 && shape[1] > 0 && shape[2] > 0 &&
                (shape[0] == batch_ || shape[0] == batch_ * beams_),
            "the network's logits must be [rows, tokens, words], not " + to_string(shape));
    const int64_t named = c_.node.get_int("vocab_size", -1);
    words_ = named > 0 ? named : shape[2];
    require(words_ <= shape[2], "the network's logits have fewer words than vocab_size");
    check_masks();
    const std::vector<float> all = logits.to_floats();
    std::vector<float> scores;
    for (int64_t r = 0; r < batch_ * beams_; ++r) {
      const int64_t row = shape[0] == batch_ ? r / beams_ : r;
      const auto from = all.begin() + ((row + 1) * shape[1] - 1) * shape[2];
      scores.insert(scores.end(), from, from + words_);
    }
    return scores;
  }

  void check_masks() const {
    const auto fits = [&](const Tokens& mask, int64_t count) {
      return mask.empty() || static_cast<int64_t>(mask.size()) == count;
    };
    require(fits(rules_.vocabulary, words_) && fits(rules_.prefix, batch_ * words_) &&
                fits(rules_.presence, batch_ * words_),
            "a mask of the vocabulary does not fit " + std::to_string(words_) + " words");
  }

  // ------------------------------------------------------------------------------------------- the networks' operands

  int64_t row_count() const { return batch_ * beams_; }
  Tensor column(const Tokens& values) const { return token_tensor(values, {row_count(), 1}); }
  Tensor over_beams(const Tensor& t) const { return picked(t, 0, items_); }

  /// Positions count the tokens that are no padding; the mask is what the operand or the padding says.
  std::vector<Value> first_decoder_feeds() {
    const auto length = static_cast<int64_t>(rows_[0].size());
    const Tokens given = tokens(form_.mask);
    require(given.empty() || static_cast<int64_t>(given.size()) == batch_ * length,
            "attention_mask does not fit input_ids");
    Tokens all, positions;
    for (size_t r = 0; r < rows_.size(); ++r) {
      int32_t position = 0;
      for (size_t i = 0; i < rows_[r].size(); ++i) {
        const bool padding = rows_[r][i] == pad_;
        const size_t at = static_cast<size_t>(items_[r]) * rows_[r].size() + i;
        all.push_back(rows_[r][i]);
        mask_.push_back(given.empty() ? !padding : given[at]);
        positions.push_back(padding ? 0 : position++);
      }
      positions_.push_back(position);
    }
    const Shape shape = {row_count(), length};
    std::vector<Value> feeds = {token_tensor(all, shape), token_tensor(positions, shape), token_tensor(mask_, shape)};
    const std::vector<TypeInfo> declared = first_decoder()->input_types();
    for (size_t i = kPast; i < declared.size(); ++i)
      feeds.emplace_back(empty_past(declared[i], {2, row_count(), -1, 0, -1}));
    return feeds;
  }
  std::shared_ptr<const Subgraph> first_decoder() const {
    return c_.node.get_subgraph(c_.node.has("init_decoder") ? "init_decoder" : "decoder");
  }
  Tensor empty_past(const TypeInfo& declared, Shape shape) const {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] >= 0) continue;
      shape[d] = declared.ranked && declared.shape.size() == shape.size() ? declared.shape[d] : -1;
      if (shape[d] < 0)
        c_.node.fail(ErrorCode::kInvalidModel,
                     "the decoder does not declare the heads of its past and their size; give its inputs shapes");
    }
    return Tensor(declared.dtype, shape);
  }

  void next_decoder_feeds(std::vector<Value>& feeds, const std::vector<Value>& results, const Tokens& next,
                          const Tokens& parents, bool first) {
    const auto length = static_cast<int64_t>(mask_.size()) / row_count();
    Tokens mask;
    for (int64_t r = 0; r < row_count(); ++r) {
      mask.insert(mask.end(), mask_.begin() + r * length, mask_.begin() + (r + 1) * length);
      mask.push_back(1);
    }
    mask_ = std::move(mask);
    if (!first)
      for (int32_t& position : positions_) ++position;
    feeds[0] = column(next);
    feeds[1] = column(positions_);
    feeds[2] = token_tensor(mask_, {row_count(), length + 1});
    for (size_t i = kPast; i < feeds.size(); ++i) feeds[i] = picked(results[i - kPast + 1].tensor, 1, parents);
  }

  /// The mask of what the encoder reads: padding counts only in front.
  Tensor encoder_mask() const {
    if (c_.has(form_.mask)) return c_.input(form_.mask);
    const Tensor& x = c_.input(kIds);
    Tokens mask;
    for (int64_t b = 0; b < batch_; ++b) {
      bool begun = false;
      for (int64_t i = 0; i < x.shape()[1]; ++i) {
        begun = begun || x.at_int64(b * x.shape()[1] + i) != pad_;
        mask.push_back(begun);
      }
    }
    return token_tensor(mask, x.shape());
  }

  // ---------------------------------------------------------------------------------------------------------- the
  // loops

  Beams beams() const {
    Beams::Options options;
    options.batch = batch_;
    options.beams = beams_;
    options.length_penalty = number(kLengthPenalty, 1.0f);
    options.stops_early = c_.node.get_int("early_stopping", 0) == 1;
    options.pad = pad_;
    options.end = static_cast<int32_t>(rules_.end);
    return {options, rows_};
  }

  void choose(Beams& beams, const Value& logits) {
    std::vector<float> scores = last_scores(logits);
    softmax_rows(scores, words_, true);
    rules_.apply(scores, beams.rows(), beams_, scores_.empty());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] += beams.sums()[i / static_cast<size_t>(words_)];
    beams.step(scores);
    scores_.push_back(std::move(scores));
  }

  bool full(const std::vector<Tokens>& rows) const { return static_cast<int64_t>(rows[0].size()) >= most_; }

  void run_beams() {
    Beams all = beams();
    if (network_ == Network::kDecoder)
      run_decoder(all);
    else
      run_encoder_decoder(all);
    Tensor sequences(DType::kInt32, {batch_, returns_, most_}), sums(DType::kFloat, {batch_, returns_});
    auto out = sequences.as_mutable<int32_t>();
    std::fill(out.begin(), out.end(), pad_);
    for (int64_t item = 0; item < batch_; ++item) {
      const std::vector<Beams::Ended> best = all.best(item, returns_);
      for (int64_t k = 0; k < returns_; ++k) {
        const auto at = static_cast<size_t>(item * returns_ + k);
        const Beams::Ended& ended = best[static_cast<size_t>(k)];
        std::copy(ended.tokens.begin(), ended.tokens.end(), out.begin() + static_cast<int64_t>(at) * most_);
        sums.as_mutable<float>()[at] = ended.score;
      }
    }
    c_.outputs[0] = std::move(sequences);
    if (c_.outputs.size() > 1) c_.outputs[1] = std::move(sums);
    if (c_.outputs.size() > 2) c_.outputs[2] = step_scores();
  }

  /// Scores of each step; steps that were not taken are zero.
  Tensor step_scores() const {
    Tensor all(DType::kFloat, {most_ - static_cast<int64_t>(rows_[0].size()), batch_, beams_, words_});
    auto out = all.as_mutable<float>().begin();
    for (const std::vector<float>& scores : scores_) out = std::copy(scores.begin(), scores.end(), out);
    return all;
  }

  void run_decoder(Beams& all) {
    std::vector<Value> feeds = first_decoder_feeds();
    std::shared_ptr<const Subgraph> body = first_decoder();
    for (bool first = true;; first = false) {
      const std::vector<Value> results = body->run(feeds);
      choose(all, results[0]);
      if (all.done() || full(all.rows())) return;
      next_decoder_feeds(feeds, results, all.next(), all.parents(), first);
      body = c_.node.get_subgraph("decoder");
    }
  }

  void run_encoder_decoder(Beams& all) {
    const EncoderDecoder nets(c_.node, network_);
    std::vector<Value> encoder_feeds = {c_.input(kIds)};
    if (nets.masked) encoder_feeds.emplace_back(encoder_mask());
    const auto begin = static_cast<int64_t>(rows_[0].size());
    if (nets.begins) {
      Tokens beginning;
      for (int64_t b = 0; b < batch_; ++b) {
        const Tokens& row = rows_[static_cast<size_t>(b * beams_)];
        beginning.insert(beginning.end(), row.begin(), row.end());
      }
      encoder_feeds.emplace_back(token_tensor(beginning, {batch_, begin}));
    }
    const std::vector<Value> left = nets.encoder->run(encoder_feeds);
    if (nets.begins) {
      choose(all, left[0]);
      if (full(all.rows())) return;
    }
    std::vector<Value> feeds = {decoder_ids(nets, all.rows())};
    if (nets.masked) feeds.emplace_back(over_beams(encoder_feeds[1].tensor));
    if (nets.hidden) feeds.emplace_back(over_beams(left[1].tensor));
    const std::vector<TypeInfo> declared = nets.decoder->input_types();
    for (size_t i = 0; i < 4 * nets.layers; ++i)
      feeds.emplace_back(nets.begins           ? over_beams(left[2 + i].tensor)
                         : i < 2 * nets.layers ? empty_past(declared[nets.before + i], {row_count(), -1, 0, -1})
                                               : over_beams(left[i - 2 * nets.layers].tensor));
    for (;;) {
      const std::vector<Value> results = nets.decoder->run(feeds);
      choose(all, results[0]);
      if (all.done() || full(all.rows())) return;
      feeds[0] = decoder_ids(nets, all.rows());
      for (size_t i = 0; i < 2 * nets.layers; ++i)
        feeds[nets.before + i] = picked(results[1 + i].tensor, 0, all.parents());
    }
  }

  Tensor decoder_ids(const EncoderDecoder& nets, const std::vector<Tokens>& rows) const {
    const bool reads_all = nets.reads_all();
    Tokens given;
    for (const Tokens& row : rows) given.insert(given.end(), reads_all ? row.begin() : row.end() - 1, row.end());
    return token_tensor(given, {row_count(), static_cast<int64_t>(given.size()) / row_count()});
  }

  void run_greedy() {
    Nucleus nucleus{c_.node.get_float("top_p", 0.0f), c_.node.get_float("filter_value", -1e20f),
                    c_.node.get_int("min_tokens_to_keep", 0), c_.node.get_int("custom", 0) != 0};
    std::minstd_rand0 generator(form_.samples && c_.has(kSeed) ? static_cast<uint32_t>(scalar(kSeed, 0))
                                                               : std::random_device{}());
    std::vector<bool> ended(rows_.size(), false);
    std::vector<Value> feeds = first_decoder_feeds();
    std::shared_ptr<const Subgraph> body = first_decoder();
    for (bool first = true;; first = false) {
      const std::vector<Value> results = body->run(feeds);
      std::vector<float> scores = last_scores(results[0]);
      rules_.apply(scores, rows_, 1, first);
      Tokens next = form_.samples ? nucleus.draw(scores, words_, generator) : greatest(scores, words_);
      for (size_t r = 0; r < next.size(); ++r) {
        ended[r] = ended[r] || next[r] == rules_.end;
        if (ended[r]) next[r] = pad_;
        rows_[r].push_back(next[r]);
      }
      if (full(rows_) || std::find(ended.begin(), ended.end(), false) == ended.end()) break;
      next_decoder_feeds(feeds, results, next, items_, first);
      body = c_.node.get_subgraph("decoder");
    }
    Tensor sequences(DType::kInt32, {batch_, most_});
    auto out = sequences.as_mutable<int32_t>();
    std::fill(out.begin(), out.end(), pad_);  // ONNX Runtime leaves what lies behind rows that have all ended unwritten
    for (size_t r = 0; r < rows_.size(); ++r)
      std::copy(rows_[r].begin(), rows_[r].end(), out.begin() + static_cast<int64_t>(r) * most_);
    c_.outputs[0] = std::move(sequences);
  }

  EvalContext& c_;
  const Form& form_;
  const Network network_;
  int64_t batch_ = 0, beams_ = 1, returns_ = 1, most_ = 0, words_ = 0;
  int32_t pad_ = 0;
  Tokens items_;                            // the item of each row
  std::vector<Tokens> rows_;                // what each begins with, or with one beam, what it has become
  Tokens mask_, positions_;                 // of the last call of a decoder
  std::vector<std::vector<float>> scores_;  // of each step
  ScoreRules rules_;
};

}  // namespace generation_loops

}  // namespace

void register_search(Registry& registry) {
  using namespace generation_loops;
  const std::set<std::string> common = {"decoder",      "decoder_start_token_id", "encoder",
                                        "eos_token_id", "init_decoder",           "model_type",
                                        "pad_token_id", "no_repeat_ngram_size",   "vocab_size"};
  const auto add = [&](const char* name, const Form& form, kernel::Arity inputs, kernel::Arity outputs,
                       std::set<std::string> more) {
    more.insert(common.begin(), common.end());
    const InferFunction infer = infer_search(form);
    const auto run = [&form](EvalContext& c, const std::vector<TypeInfo>&) { Search(c, form).run(); };
    kernel::add_checked(registry, name, 1, inputs, infer, kernel::evaluation(infer, run), std::move(more), outputs,
                        kMicrosoft, {}, /*deterministic=*/!form.samples);
  };
  add("BeamSearch", kBeamForm, {5, 12}, {1, 3}, {"early_stopping"});
  add("WhisperBeamSearch", kSpeechForm, {5, 15}, {1, 3},
      {"early_stopping", "beginning_timestamp_token_id", "decoder_output_cross_qk", "no_speech_token_id",
       "no_timestamps_token_id", "start_of_lm_token_id", "transcribe_token_id", "translate_token_id"});
  add("GreedySearch", kGreedyForm, {2, 7}, {1, 1}, {});
  add("Sampling", kSamplingForm, {2, 9}, {1, 1},
      {"custom", "filter_value", "min_tokens_to_keep", "presence_penalty", "temperature", "top_p"});
}

}  // namespace tessera::ops

#include "worker/slot_table.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

class SlotTableTest : public ::testing::Test {
 protected:
  static SequenceStart Start(int32_t slot, std::vector<int32_t> tokens,
                             std::vector<int32_t> blocks) {
    SequenceStart start;
    start.slot = slot;
    start.num_prompt_tokens = static_cast<int32_t>(tokens.size());
    start.tokens = std::move(tokens);
    start.tables = {{.first_block = 0, .blocks = std::move(blocks)}};
    return start;
  }
  // Applies a plan that must be refused for naming `field`.
  void ExpectRefused(const StepPlan& plan, const std::string& field) {
    StepRows rows;
    const absl::Status status = table_.Apply(plan, &rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(field), std::string::npos) << status;
  }

  SlotTable table_{{.max_slots = 4,
                    .max_rows = 32,
                    .num_blocks = 8,
                    .block_tokens = 16,
                    .context_length = 64,
                    .vocab_size = 100}};
};

TEST_F(SlotTableTest, APlanBecomesRowsWithPositionsAndBlocks) {
  StepPlan plan;
  plan.starts = {Start(2, std::vector<int32_t>(20, 7), {5, 3})};
  plan.segments = {{.slot = 2, .num_tokens = 18}};
  StepRows rows;
  ASSERT_TRUE(table_.Apply(plan, &rows).ok());
  table_.Advance(plan);
  ASSERT_EQ(rows.tokens.size(), 18u);
  EXPECT_EQ(rows.positions[17], 17);
  EXPECT_EQ(rows.tables[0].blocks[15], 5);
  EXPECT_EQ(rows.tables[0].blocks[16], 3);
  EXPECT_TRUE(rows.samples.empty());

  StepPlan next;
  next.segments = {{.slot = 2, .num_tokens = 2, .sample = true, .capture_logits = true}};
  ASSERT_TRUE(table_.Apply(next, &rows).ok());
  table_.Advance(next);
  EXPECT_EQ(rows.positions, (std::vector<int32_t>{18, 19}));
  ASSERT_EQ(rows.samples.size(), 1u);
  EXPECT_EQ(rows.samples[0].row, 1);
  EXPECT_EQ(rows.captures.size(), 2u);
  table_.Append(2, 9);
  EXPECT_EQ(table_.state(2).tokens.back(), 9);
}

TEST_F(SlotTableTest, PenaltyCountsSurviveAStartWithOutput) {
  StepPlan plan;
  SequenceStart start = Start(0, {1, 2, 2, 5, 5, 1}, {0});
  start.num_prompt_tokens = 3;
  start.sampling.frequency_penalty = 1;
  plan.starts = {start};
  StepRows rows;
  ASSERT_TRUE(table_.Apply(plan, &rows).ok());
  table_.Append(0, 5);
  const auto& counts = table_.state(0).counts;
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts[0].token == 1 && counts[0].in_prompt && counts[0].in_output == 1);
  EXPECT_TRUE(counts[1].token == 2 && counts[1].in_prompt && counts[1].in_output == 0);
  EXPECT_TRUE(counts[2].token == 5 && !counts[2].in_prompt && counts[2].in_output == 3);
}

TEST_F(SlotTableTest, NothingInAPlanIsTrusted) {
  StepPlan plan;
  plan.finished = {0};
  ExpectRefused(plan, "finished");
  plan = {};
  plan.starts = {Start(4, {1}, {0})};
  ExpectRefused(plan, "starts.slot");
  plan.starts = {Start(-1, {1}, {0})};
  ExpectRefused(plan, "starts.slot");
  plan.starts = {Start(0, {}, {0})};
  ExpectRefused(plan, "starts.tokens");
  plan.starts = {Start(0, {100}, {0})};
  ExpectRefused(plan, "starts.tokens id");
  plan.starts = {Start(0, {1}, {8})};
  ExpectRefused(plan, "starts.tables.blocks");
  plan.starts = {Start(0, {1, 2}, {0})};
  plan.starts[0].num_cached_tokens = 2;
  ExpectRefused(plan, "num_cached_tokens");
  plan = {};
  plan.copies = {{.from = 1, .to = 1, .num_tokens = 3}};
  ExpectRefused(plan, "copies");
  plan.copies = {{.from = 1, .to = 9, .num_tokens = 3}};
  ExpectRefused(plan, "copies.to");
  plan = {};
  plan.segments = {{.slot = 0, .num_tokens = 1}};
  ExpectRefused(plan, "segments.slot");
  plan.starts = {Start(0, std::vector<int32_t>(20, 1), {0})};
  plan.segments = {{.slot = 0, .num_tokens = 17}};
  ExpectRefused(plan, "beyond the blocks");
  plan.starts = {Start(1, std::vector<int32_t>(20, 1), {0, 1})};
  plan.segments = {{.slot = 1, .num_tokens = 19, .sample = true}};
  ExpectRefused(plan, "segments.sample");
  plan.starts = {Start(2, std::vector<int32_t>(40, 1), {0, 1, 2})};
  plan.segments = {{.slot = 2, .num_tokens = 33}};
  ExpectRefused(plan, "rows");
}

}  // namespace
}  // namespace cairn

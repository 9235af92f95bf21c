#include "worker/prefill_share.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int32_t> Share(const std::vector<int32_t>& pending, int32_t num_rows) {
  return SharePrefillRows(pending, num_rows);
}

TEST(PrefillShareTest, ALonePromptGetsEveryRow) {
  EXPECT_THAT(Share({8000}, 512), ElementsAre(512));
  EXPECT_THAT(Share({100}, 512), ElementsAre(100));
}

TEST(PrefillShareTest, AShortPromptGetsItsPartBesideAnOlderLongOne) {
  EXPECT_THAT(Share({8000, 100}, 512), ElementsAre(412, 100));
  EXPECT_THAT(Share({8000, 300}, 512), ElementsAre(384, 128));
}

TEST(PrefillShareTest, TheShortestPartGoesToWhomFewestAreLeftNotToTheNextInAge) {
  EXPECT_THAT(Share({8000, 7000, 6000, 100}, 512), ElementsAre(384, 0, 28, 100));
}

TEST(PrefillShareTest, EqualPromptsAreServedInTheirOrder) {
  EXPECT_THAT(Share({64, 64, 64, 64, 64, 64}, 256), ElementsAre(64, 64, 64, 64, 0, 0));
  EXPECT_THAT(Share({1000, 1000, 1000}, 512), ElementsAre(512, 0, 0));
}

TEST(PrefillShareTest, TheOldestAdvancesHoweverFewRowsThereAre) {
  EXPECT_THAT(Share({10, 1}, 1), ElementsAre(1, 0));
  EXPECT_THAT(Share({10, 1}, 2), ElementsAre(1, 1));
  EXPECT_THAT(Share({10, 1}, 0), ElementsAre(0, 0));
  EXPECT_THAT(Share({}, 5), IsEmpty());
}

TEST(PrefillShareTest, NoRowIsLostAndTheOldestKeepsItsPart) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> pending(1 + random() % 20);
    for (int32_t& tokens : pending) tokens = 1 + static_cast<int32_t>(random() % 200);
    const auto num_rows = 1 + static_cast<int32_t>(random() % 300);
    const std::vector<int32_t> rows = Share(pending, num_rows);
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0),
              std::min(num_rows, std::accumulate(pending.begin(), pending.end(), 0)));
    for (size_t j = 0; j < rows.size(); ++j) {
      EXPECT_GE(rows[j], 0);
      EXPECT_LE(rows[j], pending[j]);
    }
    EXPECT_GE(rows[0], std::min(pending[0], std::max(1, num_rows - num_rows / kShortestShare - 1)));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace cairn

// Tile registers are asked for only where they are used: a process that uses another set keeps its small signal
// stacks, and one whose signal stacks are too small is told so instead of getting another set.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/select.h"
#include "kvfork/error.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

const std::string kCheckpoint = std::string(KVFORK_SOURCE_DIR) + "/tests/golden/checkpoints/qwen2-bf16-tied";

// 0 where the thread has it now, which a granted permission forbids.
int set_small_signal_stack() {
  static char memory[8192];
  const stack_t stack = {.ss_sp = memory, .ss_flags = 0, .ss_size = sizeof memory};
  return sigaltstack(&stack, nullptr);
}

// Each case runs in a process of its own, since a permission is for good.
class TilePermissionDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (kernels::find_kernel_set("amx") == nullptr) GTEST_SKIP() << "this machine has no AMX";
  }
};

TEST_F(TilePermissionDeathTest, AnotherSetLeavesSignalStacksAlone) {
  EXPECT_EXIT(
      {
        Model::open(kCheckpoint, {.kernel_set = "avx2"});
        std::exit(set_small_signal_stack());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(TilePermissionDeathTest, ARefusalNamesItsReason) {
  for (const char* set : {"amx", ""}) {
    EXPECT_EXIT(
        {
          if (set_small_signal_stack() != 0) std::exit(9);
          try {
            Model::open(kCheckpoint, {.kernel_set = set});
          } catch (const Error& error) {
            std::fprintf(stderr, "%s\n", error.what());
            std::exit(error.code() == ErrorCode::Unsupported ? 3 : 4);
          }
          std::exit(5);
        },
        testing::ExitedWithCode(3), "tile registers of 'amx'.*sigaltstack");
  }
}

}  // namespace
}  // namespace kvfork

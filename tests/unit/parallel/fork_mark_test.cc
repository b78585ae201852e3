// SPDX-License-Identifier: Apache-2.0
#include "parallel/fork_mark.h"

#include <sys/wait.h>

#include "testing.h"

namespace lmn::parallel {
namespace {

TEST(a_forked_child_is_told_apart) {
  const ForkMark mark;
  EXPECT(mark.is_here());
  EXPECT_EQ(mark.pid(), getpid());
  const pid_t child = fork();
  if (child == 0) {
    const ForkMark own;  // made in the child
    _exit(!mark.is_here() && own.is_here() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT(mark.is_here());
}

}  // namespace
}  // namespace lmn::parallel

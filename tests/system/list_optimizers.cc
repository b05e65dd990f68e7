// Prints each update rule, a tab, and a config with which the loss of a small job falls. Tests in
// Python read it.
#include <cstdio>

#include "tests/common/optimizer/rule_cases.h"

int main() {
  for (const sluice::RuleCase& rule : sluice::RuleCases())
    std::printf("%s\t%s\n", rule.name.c_str(), rule.job);
}

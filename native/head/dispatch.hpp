// Which path runs: the best one for this machine, unless a test asks for another.
#pragma once
#include <string_view>
#include <vector>

#include "head/kernels.hpp"

namespace pixnar::head {

std::vector<const Kernels*> runnable();  // on this machine, best first
const Kernels& kernels();
void use_path(std::string_view name);  // empty: the best; throws std::invalid_argument if this machine cannot run it

}  // namespace pixnar::head

// How `kvfork verify` shows what it found: lines on a terminal, JSON, JUnit XML.
#pragma once

#include <string>

#include "kvfork/model.h"
#include "kvfork/verify.h"

namespace kvfork::cli {

void print_check(const VerifyCheck& check);
void print_summary(const VerifyReport& report);
void print_verify_json(const Model& model, const VerifyReport& report);

std::string make_junit(const VerifyReport& report);

}  // namespace kvfork::cli

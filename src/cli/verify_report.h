// How `kvfork verify` shows what it found: lines on a terminal, JSON, JUnit XML.
#pragma once

#include <string>

#include "kvfork/model.h"
#include "kvfork/verify.h"

namespace kvfork::cli {

/// `name` is the model as it was given.
void print_verify_model(const std::string& name, const ModelInfo& info);
void print_check(const VerifyCheck& check);
void print_summary(const VerifyReport& report);
void print_verify_json(const std::string& name, const Model& model, const VerifyReport& report);

std::string make_junit(const VerifyReport& report);

}  // namespace kvfork::cli

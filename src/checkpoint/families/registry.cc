// The list of families, and how one is found by its names.
#include <array>

#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kFamilies = {&kQwen2,
                                  &kQwen3,
                                  &kQwen2Moe,
                                  &kQwen3Moe,
                                  &kQwen3Next,
                                  &kQwen35,
                                  &kQwen35Moe,
                                  &kLlama,
                                  &kArcee,
                                  &kCohere,
                                  &kCohere2,
                                  &kDots1,
                                  &kErnie,
                                  &kErnieMoe,
                                  &kExaone4,
                                  &kFalconH1,
                                  &kGemma,
                                  &kGemma2,
                                  &kGemma3,
                                  &kVaultGemma,
                                  &kGlm,
                                  &kGlm4,
                                  &kGlm4Moe,
                                  &kGptNeoX,
                                  &kGpt2,
                                  &kGptOss,
                                  &kGranite,
                                  &kGraniteMoe,
                                  &kGraniteMoeHybrid,
                                  &kHelium,
                                  &kHunyuan,
                                  &kHunyuanMoe,
                                  &kLfm2,
                                  &kLfm2Moe,
                                  &kMiniMaxM2,
                                  &kMistral,
                                  &kMinistral,
                                  &kMinistral3,
                                  &kMixtral,
                                  &kNemotron,
                                  &kNemotronH,
                                  &kOlmo,
                                  &kOlmo2,
                                  &kOlmo3,
                                  &kOlmoe,
                                  &kOpt,
                                  &kPhi,
                                  &kPhi3,
                                  &kSeedOss,
                                  &kSmolLm3,
                                  &kStableLm,
                                  &kStarcoder2};

const Family* find_by(std::string_view Family::*name, std::string_view wanted) noexcept {
  for (const Family* family : kFamilies) {
    if (!wanted.empty() && family->*name == wanted) return family;
  }
  return nullptr;
}

}  // namespace

std::span<const Family* const> families() noexcept {
  return kFamilies;
}

const Family* find_family(std::string_view model_type) noexcept {
  return find_by(&Family::model_type, model_type);
}

const Family* find_family_of_class(std::string_view class_name) noexcept {
  return find_by(&Family::class_name, class_name);
}

const Family* find_family_of_gguf(std::string_view architecture) noexcept {
  return find_by(&Family::gguf_architecture, architecture);
}

std::string list_families() {
  std::string list;
  for (const Family* family : kFamilies) list += (list.empty() ? "" : ", ") + std::string(family->class_name);
  return list;
}

}  // namespace kvfork::checkpoint

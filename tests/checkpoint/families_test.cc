// What each family's file makes of a config: the parts that are special to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/config.h"
#include "checkpoint/families/family.h"
#include "tests/checkpoint/support.h"

namespace kvfork::checkpoint {
namespace {

using nlohmann::json;

json config_of(std::string_view model_type) {
  return {
      {"model_type", model_type}, {"hidden_size", 64},        {"intermediate_size", 100}, {"num_hidden_layers", 2},
      {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"vocab_size", 300},        {"head_dim", 24}};
}

ModelConfig parse(const json& config) {
  return parse_config(config.dump(), "config.json");
}

const TensorSpec* find_tensor(const ModelSpec& spec, std::string_view name) {
  const auto found = std::find_if(spec.tensors.begin(), spec.tensors.end(),
                                  [name](const TensorSpec& tensor) { return tensor.name == name; });
  return found == spec.tensors.end() ? nullptr : &*found;
}

TEST(Families, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names, classes;
  for (const Family* family : families()) {
    EXPECT_TRUE(names.insert(family->model_type).second) << family->model_type;
    EXPECT_TRUE(classes.insert(family->class_name).second) << family->class_name;
    EXPECT_EQ(find_family(family->model_type), family);
    EXPECT_EQ(find_family_of_class(family->class_name), family);
  }
  EXPECT_EQ(find_family(""), nullptr);
  EXPECT_EQ(find_family_of_gguf(""), nullptr);
}

TEST(Families, NemotronHHasOneThingInEachLayer) {
  json config = config_of("nemotron_h");
  config["hybrid_override_pattern"] = "M*-E";
  const ModelSpec spec = parse(config).spec;
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_TRUE(spec.layers[0].recurrent && !spec.layers[0].attention.exists() && !spec.layers[0].has_feed_forward());
  EXPECT_TRUE(!spec.layers[1].recurrent && spec.layers[1].attention.exists() && !spec.layers[1].has_feed_forward());
  EXPECT_TRUE(!spec.layers[2].recurrent && spec.layers[2].mlp.up.exists() && !spec.layers[2].attention.exists());
  EXPECT_TRUE(spec.layers[3].experts && !spec.layers[3].attention.exists());
  EXPECT_FALSE(spec.rotations[spec.layers[1].attention.rotation].exists());
  config["hybrid_override_pattern"] = "MX";
  EXPECT_THROW(parse(config), Error);
}

TEST(Families, BoundsOfMambaMayBeInfinite) {
  const auto most_step = [](const std::string& limit) {
    std::string text = config_of("falcon_h1").dump();
    text.insert(1, R"("note": "no \"Infinity\" here", "time_step_limit": )" + limit + ", ");
    return parse_config(text, "config.json").spec.layers[0].recurrent->most_step;
  };
  EXPECT_EQ(most_step("[0.0, 0.5]"), 0.5);
  for (const char* limit : {"[0.0, Infinity]", R"([0.0, {"__float__": "Infinity"}])", "[0.0, null]"})
    EXPECT_GT(most_step(limit), 1e300) << limit;
  for (const char* limit : {"[0.5, 0.1]", "[0.0]", R"([0.0, "x"])", "[-1, 2]", "3"})
    EXPECT_THROW(most_step(limit), Error) << limit;
}

TEST(Families, Qwen3NormalizesTheHeadsOfQAndK) {
  const ModelSpec spec = parse(config_of("qwen3")).spec;
  const AttentionSpec& attention = spec.layers[1].attention;
  EXPECT_TRUE(attention.q_norm.exists());
  EXPECT_TRUE(attention.k_norm.exists());
  EXPECT_EQ(attention.head_norm_form, HeadNormForm::Head);
  ASSERT_NE(find_tensor(spec, "model.layers.1.self_attn.q_norm.weight"), nullptr);
  EXPECT_EQ(find_tensor(spec, "model.layers.1.self_attn.k_norm.weight")->shape, std::vector<uint64_t>{24});
  EXPECT_EQ(find_tensor(spec, "model.layers.1.self_attn.q_proj.bias"), nullptr);
  json biased = config_of("qwen3");
  biased["attention_bias"] = true;
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
    EXPECT_NE(find_tensor(parse(biased).spec, std::string("model.layers.0.self_attn.") + name + ".bias"), nullptr);
  json plain = config_of("qwen3");
  plain.erase("head_dim");
  EXPECT_EQ(parse(plain).head_dim, 128u);
}

TEST(Families, Qwen2AndLlamaDoNot) {
  for (const char* name : {"qwen2", "llama"}) {
    const ModelSpec spec = parse(config_of(name)).spec;
    EXPECT_FALSE(spec.layers[0].attention.q_norm.exists());
    EXPECT_EQ(find_tensor(spec, "model.layers.0.self_attn.q_proj.bias") != nullptr,
              std::string_view(name) == "qwen2");
  }
}

}  // namespace
}  // namespace kvfork::checkpoint

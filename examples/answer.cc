// The main job: a fixed context is run once, and every question starts from it.
//
//   example_answer MODEL QUESTION [QUESTION ...]

#include <kvfork/context.h>
#include <kvfork/error.h>
#include <kvfork/fork.h>
#include <kvfork/generate.h>
#include <kvfork/model.h>
#include <kvfork/prompt.h>
#include <kvfork/text.h>

#include <iostream>

namespace {

constexpr const char* kPolicy =
    "You answer questions about orders. Returns: 30 days, unused, with the order number. Damage: report it within "
    "14 days "
    "with a photo. Be brief, and never guess.";

void answer(const kvfork::Context& context, const kvfork::Prompter& prompter, const char* question) {
  using namespace kvfork;
  const Model& model = *context.model();

  // The whole request is rendered and tokenized; fork() refuses it unless its ids begin with the context's.
  Fork fork = context.fork(prompter.make_request(question).ids);

  std::cout << "> " << question << "\n";
  DecodeStream stream(prompter.tokenizer(), SpecialTokens::Skip);
  generate(fork, GenerateOptions::from_defaults(model.generation_defaults(), 40), [&](int32_t id) {
    std::cout << stream.push(id) << std::flush;
    return true;  // false would end the answer here
  });
  std::cout << stream.finish() << "\n\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: example_answer MODEL QUESTION [QUESTION ...]\n";
    return 2;
  }
  try {
    const auto model = kvfork::Model::open(argv[1]);
    const kvfork::Prompter prompter(model->shared_text(), model->text().chat_template(),
                                    kvfork::FixedPart::from_system_message(kPolicy));
    const auto context = model->prefill(prompter.make_context(kvfork::BoundaryMode::Message).ids);
    std::cout << "context of " << context->size() << " tokens\n\n";
    for (int i = 2; i < argc; ++i) answer(*context, prompter, argv[i]);
  } catch (const kvfork::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

// Contexts on top of contexts: a policy that all share, a record for one customer, questions on top of both. The
// record's file holds its own part alone and names the policy's.
//
//   example_nested MODEL DIRECTORY

#include <kvfork/context.h>
#include <kvfork/error.h>
#include <kvfork/fork.h>
#include <kvfork/generate.h>
#include <kvfork/model.h>
#include <kvfork/text.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

std::string complete(const kvfork::Context& context, const std::string& question) {
  const kvfork::Tokenizer& tokenizer = context.model()->text().tokenizer();
  std::vector<int32_t> request(context.ids().begin(), context.ids().end());
  const std::vector<int32_t> asked = tokenizer.encode(question);
  request.insert(request.end(), asked.begin(), asked.end());
  kvfork::Fork fork = context.fork(std::move(request));
  const kvfork::Generation answer = kvfork::generate(fork, {.max_new_tokens = 16});
  return tokenizer.decode(answer.ids, kvfork::SpecialTokens::Skip);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: example_nested MODEL DIRECTORY\n";
    return 2;
  }
  try {
    const std::filesystem::path directory(argv[2]);
    const auto model = kvfork::Model::open(argv[1]);
    const kvfork::Tokenizer& tokenizer = model->text().tokenizer();

    // Plain text, as for a base model; with a chat template a Prompter would make the ids.
    const auto policy = model->prefill(tokenizer.encode("Policy: goods may be returned within 30 days.\n"));
    kvfork::Fork fork = policy->fork_unchecked();  // plain ids: nothing is rendered that could differ
    fork.append(tokenizer.encode("Customer: Ada, order 1815, one tent, delivered on Monday.\n"));
    const auto record = std::move(fork).seal();  // shares the policy's memory

    policy->save((directory / "policy.kv").string());
    record->save((directory / "record.kv").string());
    const auto opened = model->open_context((directory / "record.kv").string());  // finds the policy beside it

    const std::string question = "Question: until when may Ada return the tent?\nAnswer:";
    const std::string before = complete(*record, question);
    const std::string after = complete(*opened, question);
    std::cout << "policy " << policy->size() << " tokens, with the record " << record->size() << "\n"
              << "before saving:" << before << "\n"
              << "after opening:" << after << "\n"
              << (before == after && record->hash() == opened->hash() ? "equal" : "DIFFERENT") << "\n";
    return before == after ? 0 : 1;
  } catch (const kvfork::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

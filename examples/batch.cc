// Many requests over one context, decoded together. Each answer has the bits that its request has alone.
//
//   example_batch MODEL

#include <kvfork/batch.h>
#include <kvfork/context.h>
#include <kvfork/error.h>
#include <kvfork/fork.h>
#include <kvfork/model.h>
#include <kvfork/prompt.h>
#include <kvfork/text.h>

#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: example_batch MODEL\n";
    return 2;
  }
  try {
    using namespace kvfork;
    const auto model = Model::open(argv[1]);
    const Prompter prompter(model->shared_text(), model->text().chat_template(),
                            FixedPart::from_system_message("You write short product names."));
    const auto context = model->prefill(prompter.make_context(BoundaryMode::Message).ids);

    std::vector<BatchRequest> requests;
    for (const char* thing : {"a tent", "a stove", "a lamp", "a sleeping bag for the cold"}) {
      GenerateOptions options = GenerateOptions::from_defaults(model->generation_defaults(), 12);
      options.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 1 + requests.size()};
      requests.push_back({.request = Request(prompter.make_request(thing).ids, context->ids(),
                                             BoundaryMode::Message, prompter.tokenizer()),
                          .options = options});
    }

    std::vector<BatchAnswer> answers(requests.size());
    const BatchReport report =
        answer_all(*context, requests, {.max_width = 3},
                   {.on_answer = [&](size_t index, BatchAnswer answer) { answers[index] = std::move(answer); }});
    std::cout << requests.size() << " requests in " << report.n_passes << " passes over the weights, at most "
              << report.n_widest << " at once\n";

    bool all_equal = true;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (answers[i].error) throw Error(*answers[i].error);
      Fork fork = context->fork(requests[i].request);
      const bool is_equal = generate(fork, requests[i].options).ids == answers[i].generation.ids;
      all_equal = all_equal && is_equal;
      std::cout << prompter.tokenizer().decode(answers[i].generation.ids, SpecialTokens::Skip)
                << (is_equal ? "   (as alone)\n" : "   (NOT as alone)\n");
    }
    return all_equal ? 0 : 1;
  } catch (const kvfork::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

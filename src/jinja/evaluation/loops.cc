// Loops: plain, filtered and recursive ones, and the `loop` object.
#include <optional>

#include "jinja/evaluation/evaluator.h"

namespace kvfork::jinja {
namespace {

// The items of a loop that pass its test, tested as they are asked for.
struct TestedItems : Iterator {
  TestedItems(Evaluator& evaluator_in, const Stmt& stmt_in, Ref<Frame> frame_in, Cursor cursor_in)
      : Iterator("generator"),
        evaluator(evaluator_in),
        stmt(stmt_in),
        frame(std::move(frame_in)),
        cursor(std::move(cursor_in)) {}

  bool next(Runtime& rt, Value& item) override {
    if (!entered) evaluator.enter(stmt.test_function.scope, *frame);
    entered = true;
    for (Value candidate; cursor.next(rt, candidate);) {
      if (evaluator.passes_test(stmt, *frame, candidate, item)) return true;
    }
    return false;
  }

  Evaluator& evaluator;
  const Stmt& stmt;
  Ref<Frame> frame;
  Cursor cursor;
  bool entered = false;
};

}  // namespace

bool Evaluator::passes_test(const Stmt& loop, Frame& frame, const Value& item, Value& kept) {
  assign(*loop.test_target, item, frame);
  if (!evaluate_test(*loop.test, frame)) return false;
  kept = eval(*loop.test_target, frame);
  return true;
}

Value Evaluator::filtered(const Stmt& stmt, Frame& frame, Value iterable) {
  if (!stmt.test) return iterable;
  auto items =
      std::make_unique<TestedItems>(*this, stmt, make_frame(stmt.test_function, &frame), Cursor(rt_, iterable));
  rt_.add_part(*items, iterable);
  return Value::object(rt_.adopt(std::move(items)));
}

Ref<Loop> Evaluator::make_loop(const Stmt& stmt, Frame& frame, const Value& iterable, int64_t depth0) {
  auto loop = std::make_unique<Loop>(rt_, iterable);
  loop->depth0 = depth0;
  if (stmt.recursive) {
    loop->evaluator = this;
    loop->stmt = &stmt;
    loop->frame = Ref<Frame>(&frame);
  }
  return Ref<Loop>(rt_.adopt(std::move(loop)));
}

Evaluator::Flow Evaluator::run_for(const Stmt& stmt, Frame& frame) {
  Value iterable = eval(*stmt.value, frame);
  rt_.at(stmt.value->offset);
  if (stmt.recursive) {
    Value text = render_recursive(stmt, frame, iterable, 0);
    output_->append(text.text());
    return Flow::Normal;
  }
  iterable = filtered(stmt, frame, std::move(iterable));
  if (!stmt.uses_loop) return iterate(stmt, frame, iterable, nullptr);
  Ref<Loop> loop = make_loop(stmt, frame, iterable, 0);
  return iterate(stmt, frame, iterable, loop.get());
}

Value Evaluator::render_recursive(const Stmt& stmt, Frame& frame, const Value& iterable, int64_t depth0) {
  Runtime::Deeper deeper(rt_);
  Ref<Frame> own = make_frame(stmt.function, &frame);
  Ref<Loop> loop = make_loop(stmt, frame, filtered(stmt, frame, iterable), depth0);
  Output output(rt_);
  Output* outer = std::exchange(output_, &output);
  iterate(stmt, *own, loop->iterable, loop.get());
  output_ = outer;
  return rt_.string(output.take());
}

Value Evaluator::call_loop(const Loop& loop, CallArgs& args) {
  if (loop.stmt == nullptr) {
    rt_.fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
  }
  const Value* iterable = args.positional.size() == 1 && args.keywords.empty()   ? args.positional.data()
                          : args.positional.empty() && args.keywords.size() == 1 ? args.find("iterable")
                                                                                 : nullptr;
  if (iterable == nullptr) rt_.fail("TypeError", "loop() takes one argument: what to iterate over");
  return render_recursive(*loop.stmt, *loop.frame, *iterable, loop.depth0 + 1);
}

// Runs the body for every item, then `else` when no pass ended normally (jinja2 marks a loop as run at a pass's
// end).
Evaluator::Flow Evaluator::iterate(const Stmt& stmt, Frame& frame, const Value& iterable, Loop* loop) {
  // The scope is left even by an exception: `loop` in a variable that the loop's own items can reach is a cycle.
  struct LeaveAtEnd {
    Evaluator& evaluator;
    const ScopeInfo& scope;
    Frame& frame;
    ~LeaveAtEnd() { evaluator.leave(scope, frame); }
  };
  bool completed = false;
  {
    LeaveAtEnd leave_at_end{*this, stmt.scope, frame};
    completed = run_items(stmt, frame, iterable, loop);
  }
  if (loop != nullptr && loop->refs > 1) loop->finish(rt_);
  if (completed || stmt.else_body.empty()) return Flow::Normal;
  enter(stmt.else_scope, frame);
  Flow flow = run_body(stmt.else_body, frame);
  leave(stmt.else_scope, frame);
  return flow;
}

// True when at least one pass of the body ran to its end.
bool Evaluator::run_items(const Stmt& stmt, Frame& frame, const Value& iterable, Loop* loop) {
  bool completed = false;
  if (loop != nullptr) variable(stmt.slot, frame) = Value();
  std::optional<Cursor> cursor;
  if (loop == nullptr) cursor.emplace(rt_, iterable);
  Value item;
  while (loop != nullptr ? loop->advance(rt_) : cursor->next(rt_, item)) {
    assign(*stmt.target, loop != nullptr ? loop->current : item, frame);
    if (loop != nullptr) variable(stmt.slot, frame) = Value::object(loop);
    enter(stmt.scope, frame);
    Flow flow = run_body(stmt.body, frame);
    if (flow == Flow::Break) break;
    if (flow == Flow::Normal) completed = true;
  }
  return completed;
}

}  // namespace kvfork::jinja

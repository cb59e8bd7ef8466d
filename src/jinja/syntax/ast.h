// The parsed template: what parser.h builds, scope.h completes and evaluator.h runs.
//
// A tree of plain structs. Immutable after scope analysis; any thread may evaluate it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/values/value.h"

namespace kvfork::jinja {

struct Function;

/// A variable: `hops` activations outwards, then slot number `index`.
struct SlotRef {
  uint16_t hops = 0;
  uint16_t index = 0;
};

enum class ExprKind : uint8_t {
  Const,
  Name,
  NamespaceRef,
  Tuple,
  List,
  Dict,
  Attribute,
  Item,
  Slice,
  Call,
  Filter,
  Test,
  Not,
  Neg,
  Pos,
  And,
  Or,
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Mod,
  Pow,
  Concat,
  Compare,
  Conditional,
};

enum class CompareOp : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, In, NotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallSyntax {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;
  ExprPtr double_star;
  bool empty() const noexcept { return positional.empty() && keywords.empty() && !star && !double_star; }
};

struct Expr {
  ExprKind kind = ExprKind::Const;
  uint16_t height = 1;    ///< expressions inside one another, this one included
  uint32_t offset = 0;    ///< byte in the normalized source
  SlotRef slot;           ///< Name, NamespaceRef
  Value constant;         ///< Const; the name as a value for Attribute
  std::string name;       ///< Name, NamespaceRef (the namespace), Attribute, Filter, Test
  std::string attribute;  ///< NamespaceRef
  ExprPtr a, b,
      c;  ///< operands; Conditional: test, then, else (may be null); Slice: start, stop, step (may be null)
  std::vector<ExprPtr>
      items;  ///< Tuple, List, Concat; Dict: key, value, key, ...; Compare: the operands after the first
  std::vector<CompareOp> ops;        ///< Compare
  std::unique_ptr<CallSyntax> args;  ///< Call, Filter, Test
  bool folds = false;  ///< Item with a slice: all constants, so that jinja2 computes it when it compiles
  const Function* function = nullptr;  ///< Filter, Test; null: not known, fails when reached
};

enum class StmtKind : uint8_t {
  Output,
  Set,
  SetBlock,
  For,
  If,
  Macro,
  CallBlock,
  Generation,
  FilterBlock,
  With,
  Block,
  Scope,
  Break,
  Continue,
};

/// What a scope does to its variables when it is entered.
struct Load {
  enum class Action : uint8_t { Resolve, Alias, Undefine, Parameter } action = Action::Undefine;
  uint16_t slot = 0;
  SlotRef source;     ///< Alias
  uint32_t name = 0;  ///< Resolve: index into Template names
};
struct ScopeInfo {
  std::vector<Load> loads;
};

/// A body that runs in an activation of its own: a macro, a recursive loop, the filter of a loop, the template.
struct FunctionInfo {
  uint16_t n_slots = 0;
  ScopeInfo scope;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Stmt {
  StmtKind kind = StmtKind::Output;
  uint32_t offset = 0;
  ExprPtr target;  ///< Set, SetBlock, For
  ExprPtr
      value;  ///< Set; For: what is iterated; If: the test; CallBlock: the call; SetBlock, FilterBlock: the filters
  ExprPtr test;                 ///< For
  ExprPtr test_target;          ///< For with a test: the target as the test's activation sees it
  std::vector<ExprPtr> items;   ///< Output; With: targets; Macro, CallBlock: parameters (Names)
  std::vector<ExprPtr> values;  ///< With: values; Macro, CallBlock: defaults of the last parameters
  Body body;
  Body elifs;        ///< If: further If statements
  Body else_body;    ///< If, For
  std::string name;  ///< Macro, Block
  bool recursive = false;

  // Filled by scope analysis.
  std::vector<std::pair<SlotRef, uint32_t>> exported;  ///< (variable, name) of those
  ScopeInfo scope;                                     ///< For: the body; With, SetBlock, FilterBlock, Scope
  ScopeInfo else_scope;                                ///< For
  FunctionInfo function;                               ///< Macro, CallBlock, Generation, Block, recursive For
  FunctionInfo test_function;                          ///< For with a test
  bool uses_loop = false;                              ///< For: the body names `loop`
  SlotRef slot;                                        ///< Macro: its variable; For: `loop`
  bool uses_caller = false, uses_kwargs = false,
       uses_varargs = false;  ///< Macro, CallBlock, Generation: implied parameters
  bool names_caller = false;  ///< the body calls `caller`, implied or a parameter of its own
  SlotRef caller, kwargs, varargs;
};

}  // namespace kvfork::jinja

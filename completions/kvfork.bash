# bash completion for kvfork. Commands and options are read from `kvfork --help`, so that they are those of the tool at hand.

_kvfork_values() {
  # "--dtype float32|bfloat16" lists what the option takes.
  kvfork "$1" --help 2>/dev/null | sed -n "s/^  $2 \([a-z0-9]*|[a-z0-9|]*\).*/\1/p" | tr '|' ' '
}

_kvfork() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words
  if [[ $COMP_CWORD -eq 1 ]]; then
    words=$(kvfork --help 2>/dev/null | sed -n '1,/^Subcommands:/d; s/^  \([a-z][a-z]*\) .*/\1/p')
    [[ $current == -* ]] && words='--help --version'
  elif [[ $current == -* ]]; then
    words=$(kvfork "$command" --help 2>/dev/null | sed -n 's/^  \(-[a-z],\)\{0,1\}\(--[a-z][a-z-]*\).*/\2/p')
  elif [[ $previous == --* ]]; then
    words=$(_kvfork_values "$command" "$previous")
  fi
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -F _kvfork kvfork

# fish completion for kvfork. Commands and options are read from `kvfork --help`, so that they are those of the tool at hand.

function __kvfork_commands
    kvfork --help 2>/dev/null | sed -n '1,/^Subcommands:/d; s/^  \([a-z][a-z]*\)  *\(.*\)/\1\t\2/p'
end

function __kvfork_options
    kvfork (commandline -opc)[2] --help 2>/dev/null | sed -n 's/^  \(-[a-z],\)\{0,1\}\(--[a-z][a-z-]*\).*/\2/p'
end

complete -c kvfork -n 'test (count (commandline -opc)) -eq 1' -f -a '(__kvfork_commands)'
complete -c kvfork -n 'test (count (commandline -opc)) -gt 1; and string match -q -- "-*" (commandline -ct)' -f -a '(__kvfork_options)'

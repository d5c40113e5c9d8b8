# Completion of builddoctor for fish: the program itself says what can be typed. Where it knows nothing: files.

function __builddoctor_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    if test "$words[2]" = run; and set -l at (contains -i -- -- $words)
        # What follows is a command, with a completion of its own.
        set -e words[1..$at]
        complete -C (string join -- ' ' (string escape -- $words) (commandline -ct))
        return
    end
    set -l typed (commandline -cp)
    set -l found (env _BUILDDOCTOR_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="$typed" $program 2>/dev/null)
    if string length -q -- $found
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end

complete -c builddoctor -f -a '(__builddoctor_complete)'

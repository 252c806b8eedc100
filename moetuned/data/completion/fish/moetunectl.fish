# Completion of moetunectl and moetuned for fish. Printed by: moetunectl completion fish

function __moetunectl_complete
    set -l line (commandline -cp | string collect)
    set -l program (commandline -po)[1]
    set -l word (commandline -ct | string collect)
    # In --option=value the whole word is replaced.
    set -l option (string match -r -- '^--[a-z0-9-]+=' $word; or echo)
    set -l value (string replace -r -- '^--[a-z0-9-]+=' '' $word)
    set program (string replace -r '[^/]*$' moetunectl -- (string replace -r '^~/' $HOME/ -- $program))
    for row in (env _MOETUNECTL_LINE=$line $program 2>/dev/null </dev/null)
        set -l parts (string split -m 2 \t -- $row)
        switch $parts[1]
            case plain
                printf '%s\t%s\n' $option$parts[2] "$parts[3]"
            case file
                printf '%s\n' $option(complete --do-complete "'' $value")
            case dir
                printf '%s\n' $option(complete --do-complete "'' $value" | string match -r '.*/(?=\t|$)')
        end
    end
end

complete --command moetunectl --no-files --arguments '(__moetunectl_complete)'
complete --command moetuned --no-files --arguments '(__moetunectl_complete)'

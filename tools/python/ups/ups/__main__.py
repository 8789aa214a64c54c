from ups_command import main

main()

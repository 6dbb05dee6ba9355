from crucible.cli import main

main()

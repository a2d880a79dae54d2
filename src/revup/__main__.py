from revup.cli import main

main()

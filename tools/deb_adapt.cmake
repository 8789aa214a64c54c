# Run by cpack before it packs: things as Debian wants them. The licence is called copyright, news and manual are compressed, and zsh's completions
# have a folder of their own.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
configure_file(${CPACK_UPS_SOURCE}/LICENSE ${share}/doc/ups/copyright COPYONLY)
configure_file(${CPACK_UPS_SOURCE}/CHANGELOG.md ${share}/doc/ups/NEWS COPYONLY)
execute_process(COMMAND gzip -9nf ${share}/doc/ups/NEWS ${share}/man/man1/ups.1 COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)

# `cpack` makes a Debian package of what `cmake --install` installs: tools/deb builds that and runs it. What it needs at run time is told by
# dpkg-shlibdeps.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ups)
set(CPACK_PACKAGE_CONTACT "The UPS developers")
set(CPACK_PACKAGE_VENDOR "The UPS developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Universal Physics Stack: neural surrogates of PDEs")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "A frozen encoder turns every frame of simulated trajectories into latent
tokens once; they live in a compressed cache. One operator learns to advance
them in time, for many PDEs together. This package has the command ups, and
libups with its header, by which other programs read the data and predict.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS fonts-dejavu-core) # of pictures
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin) # mpirun
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/deb_adapt.cmake)
set(CPACK_UPS_SOURCE ${PROJECT_SOURCE_DIR})
# So that other packages know which one libups is of, and the loader that it is there.
file(WRITE ${PROJECT_BINARY_DIR}/shlibs "libups ${PROJECT_VERSION_MAJOR} ups (>= ${PROJECT_VERSION})\n")
file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/shlibs ${PROJECT_BINARY_DIR}/triggers)
include(CPack)

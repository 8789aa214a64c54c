# HDF5 and cairo from their archives, for tools/wheel. As shared libraries, Debian's bring forty more with them, of networks and windows, that UPS never
# calls.

# ups_use_archives(TARGET NAME...): what links this imported target takes libNAME.a of each NAME, where there is one, and else the shared library.
function(ups_use_archives target)
  set(libraries "")
  foreach(name ${ARGN})
    find_library(UPS_ARCHIVE_${name} NAMES lib${name}.a ${name} HINTS ${HDF5_LIBRARY_DIRS} REQUIRED)
    list(APPEND libraries ${UPS_ARCHIVE_${name}})
  endforeach()
  list(JOIN libraries , group)
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "$<LINK_GROUP:RESCAN,${group}>;m;${CMAKE_DL_LIBS}")
endfunction()

ups_use_archives(PkgConfig::CAIRO cairo pixman-1 fontconfig freetype png16 expat brotlidec brotlicommon z)
ups_use_archives(PkgConfig::HDF5 hdf5_hl hdf5 sz aec z)
set(UPS_HDF5_HL "")
add_link_options(LINKER:--as-needed)

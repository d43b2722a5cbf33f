# cmake/install.cmake -- bin/nnc; libnnc.so and libnnc.a with nnc/nnc.h, nnc.pc and a CMake package; the plug-ins in nnc/ beside the
# libraries, which find them there. All of it may be moved as a whole: nothing holds the prefix, but the static library's last guess.
install(TARGETS nnc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS nnc_shared nnc_static LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(name llvm mpi jpeg png)
  if(TARGET nnc_plugin_${name})
    install(TARGETS nnc_plugin_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/nnc)
  endif()
endforeach()
install(FILES src/api/nnc.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nnc)
install(FILES src/base/codes.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nnc/base)

# The way from a file in lib/pkgconfig or lib/cmake/nnc back to the prefix.
file(RELATIVE_PATH NNC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" NNC_UP "${NNC_UP}")
set(NNC_ZLIB_FLAG "")
set(NNC_ZLIB_NAME "")
if(NNC_HAVE_ZLIB)
  set(NNC_ZLIB_FLAG "-lz ")
  set(NNC_ZLIB_NAME "z;")
endif()
configure_file(cmake/nnc.pc.in nnc.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nnc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/nnc)
configure_package_config_file(cmake/nncConfig.cmake.in nncConfig.cmake INSTALL_DESTINATION ${package}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(nncConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/nncConfig.cmake ${CMAKE_BINARY_DIR}/nncConfigVersion.cmake DESTINATION ${package})

# The models name their schema as ../docs/schema/...
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/nnc FILES_MATCHING PATTERN *.json)
install(DIRECTORY docs/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/nnc/docs)

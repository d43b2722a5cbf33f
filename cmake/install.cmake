# cmake/install.cmake -- bin/nnc, the plug-ins in lib/nnc (where nnc looks, ../lib/nnc from the program), and the C API: static libraries,
# headers and nnc.pc. A program of your own finds the plug-ins through NNC_PLUGIN_DIR.
install(TARGETS nnc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(name llvm onednn openmp)
  if(TARGET nnc_plugin_${name})
    install(TARGETS nnc_plugin_${name} LIBRARY DESTINATION lib/nnc)
  endif()
endforeach()

# In link order.
set(libs api frontend passes engines plan codegen math schedule interp kernel runtime ir target base)
set(NNC_PC_LIBS "")
foreach(name ${libs})
  install(TARGETS nnc_${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  string(APPEND NNC_PC_LIBS " -lnnc_${name}")
endforeach()
foreach(h api/nnc.h base/status.h base/arena.h base/text.h base/tensor.h base/dtypes.def)
  get_filename_component(dir ${h} DIRECTORY)
  install(FILES src/${h} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nnc/${dir})
endforeach()
configure_file(cmake/nnc.pc.in nnc.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nnc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The models name their schema as ../docs/schema/...
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/nnc FILES_MATCHING PATTERN *.json)
install(DIRECTORY docs/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/nnc/docs)

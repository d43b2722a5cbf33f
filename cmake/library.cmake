# cmake/library.cmake -- libnnc.so and libnnc.a, made of the folders' objects. Both show nnc.h's functions alone: whatever else is compiled
# with hidden visibility, and in the archive, one object, hidden symbols are made local.
set(objects "")
set(folder_targets "")
foreach(name IN LISTS nnc_folders)
  list(APPEND objects $<TARGET_OBJECTS:nnc_${name}>)
  list(APPEND folder_targets nnc_${name})
endforeach()
set(nnc_library_deps nnc_zlib Threads::Threads m ${CMAKE_DL_LIBS})

add_library(nnc_shared SHARED ${objects})
set_target_properties(nnc_shared PROPERTIES OUTPUT_NAME nnc EXPORT_NAME nnc VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINKER_LANGUAGE C)
target_link_libraries(nnc_shared PRIVATE ${nnc_library_deps})

set(nnc_object ${CMAKE_BINARY_DIR}/libnnc.o)
add_custom_command(OUTPUT ${nnc_object}
  COMMAND ${CMAKE_LINKER} -r -o ${nnc_object} ${objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${nnc_object}
  DEPENDS ${folder_targets} COMMAND_EXPAND_LISTS VERBATIM) # make has no rules for another target's objects, but knows the target
set_source_files_properties(${nnc_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(nnc_static STATIC ${nnc_object})
set_target_properties(nnc_static PROPERTIES OUTPUT_NAME nnc LINKER_LANGUAGE C)
if(NNC_SANITIZE) # they are tested as installed, without a sanitizer
  set_target_properties(nnc_shared nnc_static PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

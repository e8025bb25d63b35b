"""The work behind `live`: converts between records and live torch objects."""
